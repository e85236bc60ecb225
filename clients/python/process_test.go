package python_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/runtimes"
	"github.com/gpumux/gpumux/internal/test/wiretest"
	"github.com/gpumux/gpumux/internal/wire"
)

var (
	python  = interpreter()
	runtime string
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "runtimes")
	if err == nil {
		runtime, err = runtimes.Python(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	os.RemoveAll(dir)
	os.Exit(status)
}

// interpreter is GPUMUX_TEST_PYTHON, else the repository's .venv, else python3.
func interpreter() string {
	venv, err := filepath.Abs("../../.venv/bin/python")
	for _, candidate := range []string{os.Getenv("GPUMUX_TEST_PYTHON"), venv} {
		if candidate != "" && err == nil && exec.Command(candidate, "-c", "").Run() == nil {
			return candidate
		}
	}
	return "python3"
}

// launch starts Python, with more descriptors behind the wire's, and sends nothing.
func launch(t *testing.T, more ...*os.File) *wiretest.Process {
	t.Helper()
	near, file, err := wire.Pair(syscall.SOCK_STREAM)
	require.NoError(t, err)
	cmd := exec.Command(python, runtime)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LANG=C", "HOME=" + os.Getenv("HOME"), "PYTHONDONTWRITEBYTECODE=1", "GPUMUX_ARG=" + os.Getenv("GPUMUX_ARG")}
	return wiretest.Start(t, near, append([]*os.File{file}, more...), cmd)
}

// greet starts Python with a task of testdata.
func greet(t *testing.T, dir, target string) *wiretest.Process {
	t.Helper()
	p := launch(t)
	hello := p.Next().(wire.ProcessHello)
	require.Equal(t, p.Cmd.Process.Pid, hello.PID)
	require.Regexp(t, `^python 3\.\d+\.\d+$`, hello.Runtime)
	dir, err := filepath.Abs(filepath.Join("testdata", dir))
	require.NoError(t, err)
	require.NoError(t, p.Conn.Send(wire.Hello{Version: wire.Version, Task: "the task", Target: target, Dir: dir,
		Slot: "gpu/3", Device: "CPU", Memory: 1 << 30, Mode: gpumux.ModePersistent}))
	return p
}

// start is greet up to ready.
func start(t *testing.T, target string) *wiretest.Process {
	t.Helper()
	p := greet(t, "tasks", target)
	p.Concurrent = p.Next().(wire.Ready).Concurrent > 0
	return p
}

func quote(text string) string {
	raw, _ := json.Marshal(text)
	return string(raw)
}

func TestProcess_RefusesAnotherVersion(t *testing.T) {
	p := launch(t)
	require.IsType(t, wire.ProcessHello{}, p.Next())
	require.NoError(t, p.Conn.Send(wire.Hello{Version: 2}))
	require.Equal(t, 64, p.Exit())
	require.Equal(t, "gpumux: this runtime speaks wire version 1, the worker version 2; use the runtime that the worker installs\n", p.Printed())
}

func TestProcess_RefusesWhatIsNoProtocol(t *testing.T) {
	p := start(t, "kinds.py:plain")
	require.NoError(t, p.Conn.Send(wire.ProcessHello{Version: 1}))
	require.Equal(t, 64, p.Exit())
	require.Contains(t, p.Printed(), "gpumux: the worker says 'hello' where only run, cancel and stop can come")

	cmd := exec.Command(python, runtime)
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, 64, cmd.ProcessState.ExitCode())
	require.Contains(t, string(out), "a gpumux worker starts this program")
}

func TestProcess_StopAndEndOfStream(t *testing.T) {
	p := start(t, "kinds.py:plain")
	require.NoError(t, p.Conn.Send(wire.Stop{}))
	require.Zero(t, p.Exit())

	p = start(t, "kinds.py:plain")
	require.NoError(t, p.Close())
	p.Cmd.Wait()
	require.Zero(t, p.Cmd.ProcessState.ExitCode())
	require.Empty(t, p.Printed())
}

func TestProcess_EndOfStreamWhileAnItemRuns(t *testing.T) {
	p := start(t, "life.py:until")
	path := filepath.Join(t.TempDir(), "go")
	p.Send(1, "null", quote(path), "null")
	require.Equal(t, "true", p.Take(0).Value)
	require.NoError(t, p.Close())
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	p.Cmd.Wait()
	require.Zero(t, p.Cmd.ProcessState.ExitCode())
	require.Empty(t, p.Printed())
}

func TestProcess_TermUnwinds(t *testing.T) {
	for _, function := range []string{"waits", "waits_awaited"} {
		t.Run(function, func(t *testing.T) {
			p := start(t, "life.py:"+function)
			path := filepath.Join(t.TempDir(), "mark")
			p.Send(1, quote(path))
			require.IsType(t, wire.ProgressReport{}, p.Next())
			require.NoError(t, p.Cmd.Process.Signal(syscall.SIGINT))
			require.NoError(t, p.Cmd.Process.Signal(syscall.SIGTERM))
			// One that comes at the moment when Python begins to wait is seen with the next only.
			again := time.AfterFunc(20*time.Second, func() { _ = p.Cmd.Process.Signal(syscall.SIGTERM) })
			defer again.Stop()
			require.Equal(t, 143, p.Exit())
			require.FileExists(t, path, "finally ran")
			require.Empty(t, p.Printed())
		})
	}
	t.Run("between items", func(t *testing.T) {
		p := start(t, "kinds.py:plain")
		p.Values("1")
		require.NoError(t, p.Cmd.Process.Signal(syscall.SIGTERM))
		require.Equal(t, 143, p.Exit())
	})
	t.Run("waiting for next", func(t *testing.T) {
		p := start(t, "faults.py:raises")
		p.Send(1, `"exit"`, "1")
		require.IsType(t, wire.Fault{}, p.Next())
		require.NoError(t, p.Cmd.Process.Signal(syscall.SIGTERM))
		require.Equal(t, 143, p.Exit())
	})
	t.Run("swallowed", func(t *testing.T) {
		p := start(t, "life.py:swallows")
		path := filepath.Join(t.TempDir(), "mark")
		p.Send(1, quote(path), quote(path))
		require.IsType(t, wire.ProgressReport{}, p.Next())
		require.NoError(t, p.Cmd.Process.Signal(syscall.SIGTERM))
		require.Equal(t, `"finished all the same"`, p.Take(0).Value)
		require.Equal(t, 143, p.Exit(), "the second item does not begin")
	})
}

func TestProcess_ResultIsSentBeforeTheNextItemStarts(t *testing.T) {
	p := start(t, "life.py:until")
	path := filepath.Join(t.TempDir(), "go")
	p.Send(1, "null", quote(path), "null")
	require.Equal(t, "true", p.Take(0).Value, "while the second item still runs")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.Equal(t, "false", p.Take(1).Value)
	require.Equal(t, "true", p.Take(2).Value)
}

func TestProcess_DeathLosesNoFinishedItem(t *testing.T) {
	p := start(t, "faults.py:dies")
	p.Send(1, "1", "2", `"die"`, "4")
	require.Equal(t, "1", p.Take(0).Value)
	require.Equal(t, "2", p.Take(1).Value)
	_, err := p.Read()
	require.ErrorIs(t, err, io.EOF)
	p.Cmd.Wait()
	require.Equal(t, syscall.SIGABRT, p.Cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
	require.Contains(t, p.Printed(), "Fatal Python error: Aborted", "faulthandler shows where")
	require.Contains(t, p.Printed(), "in dies")
}

func TestProcess_SlotResidentProgress(t *testing.T) {
	p := start(t, "life.py:slot")
	require.Equal(t, []string{`["gpu/3","CPU",1073741824,"persistent","the task"]`}, p.Values("1"))

	p = start(t, "life.py:resident")
	require.Equal(t, []string{"[0,7]", "[0,7,8]"}, p.Values("7", "8"))

	p = start(t, "life.py:reports")
	p.Send(1, "0", "1")
	for n := range 2 {
		require.Equal(t, wire.ProgressReport{Run: 1, N: n, Value: json.RawMessage(fmt.Sprintf(`{"step":%d}`, n))}, p.Next())
		require.Equal(t, wire.ProgressReport{Run: 1, N: n, Value: json.RawMessage(`"from a thread"`)}, p.Next())
		require.Contains(t, p.Take(n).Value, "progress is an object, which JSON cannot hold")
	}
}

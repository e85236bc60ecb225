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

// process is a real Python with the wire and an output file, as a slot has it.
type process struct {
	*wire.Conn
	t          *testing.T
	cmd        *exec.Cmd
	output     string
	run        int64
	concurrent bool
}

// launch starts Python, with more descriptors behind the wire's, and sends nothing.
func launch(t *testing.T, more ...*os.File) *process {
	t.Helper()
	near, file, err := wire.Pair()
	require.NoError(t, err)
	p := &process{Conn: wire.NewWorker(near), t: t, output: filepath.Join(t.TempDir(), "output")}
	output, err := os.OpenFile(p.output, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	require.NoError(t, err)
	p.cmd = exec.Command(python, runtime)
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LANG=C", "HOME=" + os.Getenv("HOME"), "PYTHONDONTWRITEBYTECODE=1"}
	p.cmd.Stdout, p.cmd.Stderr = output, output
	p.cmd.ExtraFiles = append([]*os.File{file}, more...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, p.cmd.Start())
	require.NoError(t, file.Close())
	require.NoError(t, output.Close())
	require.NoError(t, near.SetDeadline(time.Now().Add(60*time.Second)))
	t.Cleanup(func() {
		near.Close()
		syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		p.cmd.Wait()
		if t.Failed() {
			t.Logf("the process printed:\n%s", p.printed())
		}
	})
	return p
}

// greet starts Python with a task of testdata.
func greet(t *testing.T, dir, target string) *process {
	t.Helper()
	p := launch(t)
	hello := p.next().(wire.ProcessHello)
	require.Equal(t, p.cmd.Process.Pid, hello.PID)
	require.Regexp(t, `^python 3\.\d+\.\d+$`, hello.Runtime)
	dir, err := filepath.Abs(filepath.Join("testdata", dir))
	require.NoError(t, err)
	require.NoError(t, p.Write(wire.Hello{Version: wire.Version, Task: "the task", Target: target, Dir: dir,
		Slot: "gpu/3", Device: "CPU", Memory: 1 << 30, Mode: gpumux.ModePersistent}))
	return p
}

// start is greet up to ready.
func start(t *testing.T, target string) *process {
	t.Helper()
	p := greet(t, "tasks", target)
	p.concurrent = p.next().(wire.Ready).Concurrent > 0
	return p
}

func (p *process) next() wire.Message {
	p.t.Helper()
	m, err := p.Read()
	require.NoError(p.t, err)
	return m
}

// send sends items without waiting.
func (p *process) send(attempts int, items ...string) {
	p.t.Helper()
	p.run++
	r := wire.Run{Run: p.run, Attempts: attempts}
	for _, item := range items {
		r.Items = append(r.Items, json.RawMessage(item))
	}
	require.NoError(p.t, p.Write(r))
}

// answer is what an item came to: a value, or the class of its fault.
type answer struct {
	value    string
	fault    *wire.Raised
	attempts int
	out      int64
	// raw: it was no JSON on its way.
	raw bool
}

// do sends items and waits for an answer to each: in order, unless they run at the same
// time.
func (p *process) do(attempts int, items ...string) []answer {
	p.t.Helper()
	p.send(attempts, items...)
	answers := make([]answer, len(items))
	for answered := 0; answered < len(items); {
		n, got := p.read()
		if !p.concurrent {
			require.Equal(p.t, answered, n)
		}
		answered += copy(answers[n:], got)
	}
	return answers
}

// take reads one message with answers from position n on.
func (p *process) take(n int) []answer {
	p.t.Helper()
	at, answers := p.read()
	require.Equal(p.t, n, at)
	return answers
}

// read reads one message with answers, from position n on.
func (p *process) read() (n int, answers []answer) {
	p.t.Helper()
	switch m := p.next().(type) {
	case wire.Results:
		require.Equal(p.t, p.run, m.Run)
		for i, value := range m.Values {
			a := answer{attempts: 1, out: m.Out}
			if m.Kinds != nil && m.Kinds[i] != wire.JSON {
				var err error
				value, err = m.Kinds[i].Text(value)
				require.NoError(p.t, err)
				a.raw = true
			}
			require.True(p.t, json.Valid(value), "%s", value)
			a.value = string(value)
			if m.Attempts != nil {
				a.attempts = m.Attempts[i]
			}
			answers = append(answers, a)
		}
		return m.N, answers
	case wire.Fault:
		require.Equal(p.t, p.run, m.Run)
		require.NoError(p.t, p.Write(wire.Next{}))
		return m.N, []answer{{fault: &m.Raised, attempts: max(1, m.Attempts), out: m.Out}}
	default:
		require.Fail(p.t, "unexpected message", "%#v", m)
		return 0, nil
	}
}

// values is do for items that all succeed.
func (p *process) values(items ...string) []string {
	p.t.Helper()
	var list []string
	for i, a := range p.do(1, items...) {
		require.Nil(p.t, a.fault, "item %d", i)
		list = append(list, a.value)
	}
	return list
}

func (p *process) printed() string {
	data, err := os.ReadFile(p.output)
	require.NoError(p.t, err)
	return string(data)
}

// exit waits for the end of the process and returns its status.
func (p *process) exit() int {
	p.t.Helper()
	for {
		_, err := p.Read()
		if err != nil {
			require.ErrorIs(p.t, err, io.EOF)
			break
		}
	}
	p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

func quote(text string) string {
	raw, _ := json.Marshal(text)
	return string(raw)
}

func TestProcess_RefusesAnotherVersion(t *testing.T) {
	p := launch(t)
	require.IsType(t, wire.ProcessHello{}, p.next())
	require.NoError(t, p.Write(wire.Hello{Version: 2}))
	require.Equal(t, 64, p.exit())
	require.Equal(t, "gpumux: this runtime speaks wire version 1, the worker version 2; use the runtime that the worker installs\n", p.printed())
}

func TestProcess_RefusesWhatIsNoProtocol(t *testing.T) {
	p := start(t, "kinds.py:plain")
	require.NoError(t, p.Write(wire.ProcessHello{Version: 1}))
	require.Equal(t, 64, p.exit())
	require.Contains(t, p.printed(), "gpumux: the worker says 'hello' where only run, cancel and stop can come")

	cmd := exec.Command(python, runtime)
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, 64, cmd.ProcessState.ExitCode())
	require.Contains(t, string(out), "a gpumux worker starts this program")
}

func TestProcess_StopAndEndOfStream(t *testing.T) {
	p := start(t, "kinds.py:plain")
	require.NoError(t, p.Write(wire.Stop{}))
	require.Zero(t, p.exit())

	p = start(t, "kinds.py:plain")
	require.NoError(t, p.Close())
	p.cmd.Wait()
	require.Zero(t, p.cmd.ProcessState.ExitCode())
	require.Empty(t, p.printed())
}

func TestProcess_EndOfStreamWhileAnItemRuns(t *testing.T) {
	p := start(t, "life.py:until")
	path := filepath.Join(t.TempDir(), "go")
	p.send(1, "null", quote(path), "null")
	require.Equal(t, "true", p.take(0)[0].value)
	require.NoError(t, p.Close())
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	p.cmd.Wait()
	require.Zero(t, p.cmd.ProcessState.ExitCode())
	require.Empty(t, p.printed())
}

func TestProcess_TermUnwinds(t *testing.T) {
	for _, function := range []string{"waits", "waits_awaited"} {
		t.Run(function, func(t *testing.T) {
			p := start(t, "life.py:"+function)
			path := filepath.Join(t.TempDir(), "mark")
			p.send(1, quote(path))
			require.IsType(t, wire.ProgressReport{}, p.next())
			require.NoError(t, p.cmd.Process.Signal(syscall.SIGINT))
			require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
			// One that comes at the moment when Python begins to wait is seen with the next only.
			again := time.AfterFunc(20*time.Second, func() { _ = p.cmd.Process.Signal(syscall.SIGTERM) })
			defer again.Stop()
			require.Equal(t, 143, p.exit())
			require.FileExists(t, path, "finally ran")
			require.Empty(t, p.printed())
		})
	}
	t.Run("between items", func(t *testing.T) {
		p := start(t, "kinds.py:plain")
		p.values("1")
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
		require.Equal(t, 143, p.exit())
	})
	t.Run("waiting for next", func(t *testing.T) {
		p := start(t, "faults.py:raises")
		p.send(1, `"exit"`, "1")
		require.IsType(t, wire.Fault{}, p.next())
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
		require.Equal(t, 143, p.exit())
	})
	t.Run("swallowed", func(t *testing.T) {
		p := start(t, "life.py:swallows")
		path := filepath.Join(t.TempDir(), "mark")
		p.send(1, quote(path), quote(path))
		require.IsType(t, wire.ProgressReport{}, p.next())
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
		require.Equal(t, `"finished all the same"`, p.take(0)[0].value)
		require.Equal(t, 143, p.exit(), "the second item does not begin")
	})
}

func TestProcess_ResultIsSentBeforeTheNextItemStarts(t *testing.T) {
	p := start(t, "life.py:until")
	path := filepath.Join(t.TempDir(), "go")
	p.send(1, "null", quote(path), "null")
	require.Equal(t, "true", p.take(0)[0].value, "while the second item still runs")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.Equal(t, "false", p.take(1)[0].value)
	require.Equal(t, "true", p.take(2)[0].value)
}

func TestProcess_DeathLosesNoFinishedItem(t *testing.T) {
	p := start(t, "faults.py:dies")
	p.send(1, "1", "2", `"die"`, "4")
	require.Equal(t, "1", p.take(0)[0].value)
	require.Equal(t, "2", p.take(1)[0].value)
	_, err := p.Read()
	require.ErrorIs(t, err, io.EOF)
	p.cmd.Wait()
	require.Equal(t, syscall.SIGABRT, p.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
	require.Contains(t, p.printed(), "Fatal Python error: Aborted", "faulthandler shows where")
	require.Contains(t, p.printed(), "in dies")
}

func TestProcess_SlotResidentProgress(t *testing.T) {
	p := start(t, "life.py:slot")
	require.Equal(t, []string{`["gpu/3","CPU",1073741824,"persistent","the task"]`}, p.values("1"))

	p = start(t, "life.py:resident")
	require.Equal(t, []string{"[0,7]", "[0,7,8]"}, p.values("7", "8"))

	p = start(t, "life.py:reports")
	p.send(1, "0", "1")
	for n := range 2 {
		require.Equal(t, wire.ProgressReport{Run: 1, N: n, Value: json.RawMessage(fmt.Sprintf(`{"step":%d}`, n))}, p.next())
		require.Equal(t, wire.ProgressReport{Run: 1, N: n, Value: json.RawMessage(`"from a thread"`)}, p.next())
		require.Contains(t, p.take(n)[0].value, "progress is a object, which JSON cannot hold")
	}
}

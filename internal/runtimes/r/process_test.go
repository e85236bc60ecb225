package r_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/runtimes"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/internal/test/wiretest"
	"github.com/gpumux/gpumux/internal/wire"
)

// launch starts R and sends nothing.
func launch(t *testing.T, env ...string) *wiretest.Process {
	t.Helper()
	rig.WithoutR(t)
	main, err := runtimes.R(t.TempDir())
	require.NoError(t, err)
	python, err := runtimes.Python(t.TempDir())
	require.NoError(t, err)
	near, files, err := wire.Pipes()
	require.NoError(t, err)
	cmd := exec.Command("Rscript", main, python)
	cmd.Env = append(os.Environ(), env...)
	return wiretest.Start(t, near, files, cmd)
}

// greet starts R with a task of testdata.
func greet(t *testing.T, target string) *wiretest.Process {
	t.Helper()
	p := launch(t)
	hello := p.Next().(wire.ProcessHello)
	require.Equal(t, p.Cmd.Process.Pid, hello.PID)
	require.Regexp(t, `^R \d+\.\d+\.\d+$`, hello.Runtime)
	dir, err := filepath.Abs("testdata")
	require.NoError(t, err)
	require.NoError(t, p.Conn.Send(wire.Hello{Version: wire.Version, Task: "the task", Target: target, Dir: dir, Slot: "gpu/3", Device: "GPU-1",
		Memory: 1 << 30, Room: 1 << 29, Mode: gpumux.ModePersistent}))
	return p
}

// start is greet up to ready.
func start(t *testing.T, function string) *wiretest.Process {
	t.Helper()
	p := greet(t, "tasks.R:"+function)
	require.Equal(t, wire.Ready{}, p.Next())
	return p
}

func TestProcess_RefusesWhatIsNoProtocol(t *testing.T) {
	p := launch(t)
	require.IsType(t, wire.ProcessHello{}, p.Next())
	require.NoError(t, p.Conn.Send(wire.Hello{Version: 2}))
	require.Equal(t, 64, p.Exit())
	require.Contains(t, p.Printed(), "gpumux: this runtime speaks wire version 1, the worker version 2;")

	p = start(t, "echo")
	require.NoError(t, p.Conn.Send(wire.ProcessHello{Version: 1}))
	require.Equal(t, 64, p.Exit())
	require.Contains(t, p.Printed(), "the worker says hello where only run and stop can come")

	main, err := runtimes.R(t.TempDir())
	require.NoError(t, err)
	cmd := exec.Command("Rscript", main)
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, 64, cmd.ProcessState.ExitCode())
	require.Contains(t, string(out), "a gpumux worker starts this program")
}

func TestProcess_StopAndEndOfStream(t *testing.T) {
	p := start(t, "echo")
	require.NoError(t, p.Cmd.Process.Signal(syscall.SIGINT))
	require.Equal(t, "1", p.Do(1, "1")[0].Value, "SIGINT is not for it")
	require.NoError(t, p.Conn.Send(wire.Stop{}))
	require.Zero(t, p.Exit())

	p = start(t, "echo")
	require.NoError(t, p.Close())
	p.Cmd.Wait()
	require.Zero(t, p.Cmd.ProcessState.ExitCode())
	require.Empty(t, p.Printed())
}

func TestProcess_LoadFaults(t *testing.T) {
	for target, want := range map[string][2]string{
		"none.R:f":               {"FileNotFoundError", "there is no .*none.R; the folder has: broken.R, near.R, tasks.R"},
		"tasks.R:f":              {"NotFoundError", "tasks.R has no function f; it has: .*square.*"},
		"tasks.R:not_a_function": {"NotFoundError", "a value, not a function"},
		"broken.R:f":             {"simpleError", "not today"},
	} {
		p := greet(t, target)
		fault := p.Next().(wire.Fault)
		require.Equal(t, want[0], fault.Raised.Class, target)
		require.Regexp(t, want[1], fault.Raised.Message)
		require.Equal(t, 65, p.Exit())
	}
}

func TestProcess_WithoutJsonlite(t *testing.T) {
	p := launch(t, "R_LIBS=", "R_LIBS_SITE=/nowhere", "R_LIBS_USER=/nowhere")
	require.IsType(t, wire.ProcessHello{}, p.Next())
	if m := p.Next().(wire.Fault); true {
		require.Contains(t, m.Raised.Message, "R has no package jsonlite")
		require.Equal(t, 65, p.Exit())
	}
}

func TestProcess_AnswersBeforeTheNextItemStarts(t *testing.T) {
	p := start(t, "until")
	path := filepath.Join(t.TempDir(), "go")
	p.Send(1, "null", fmt.Sprintf("%q", path), "null")
	require.Equal(t, "true", p.Take(0).Value, "while the second item still runs")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.Equal(t, "false", p.Take(1).Value)
	require.Equal(t, "true", p.Take(2).Value)
}

func TestProcess_DeathLosesNoFinishedItem(t *testing.T) {
	p := start(t, "dies")
	p.Send(1, `"1"`, `"2"`, `"die"`, `"4"`)
	require.Equal(t, `"1"`, p.Take(0).Value)
	require.Equal(t, `"2"`, p.Take(1).Value)
	_, err := p.Read()
	require.ErrorIs(t, err, io.EOF)
	p.Cmd.Wait()
	require.Equal(t, syscall.SIGABRT, p.Cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
}

func TestProcess_SlotProgressAndDescriptors(t *testing.T) {
	p := start(t, "reports")
	p.Send(1, "5")
	require.Equal(t, wire.ProgressReport{Run: 1, Value: json.RawMessage(`{"step":5}`)}, p.Next())
	require.Equal(t, `"GPU-1"`, p.Take(0).Value)

	require.Equal(t, "0", start(t, "descriptors").Do(1, "1")[0].Value, "programs of the task do not have the wire's descriptors")
}

// A Python within R has the slot's limits for its frameworks, and nothing of the runtime
// on its path.
func TestProcess_PythonWithinR(t *testing.T) {
	rig.WithoutR(t, "reticulate")
	require.Equal(t, `["536870912",true,false]`, start(t, "python").Do(1, "1")[0].Value)
}

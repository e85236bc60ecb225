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
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/runtimes"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/internal/wire"
)

// process is a real R with the wire and an output file, as a slot has it.
type process struct {
	*wire.Conn
	t      *testing.T
	cmd    *exec.Cmd
	output string
	run    int64
}

// launch starts R and sends nothing.
func launch(t *testing.T, env ...string) *process {
	t.Helper()
	rig.WithoutR(t)
	main, err := runtimes.R(t.TempDir())
	require.NoError(t, err)
	near, files, err := wire.Pipes()
	require.NoError(t, err)
	p := &process{Conn: wire.NewWorker(near), t: t, output: filepath.Join(t.TempDir(), "output")}
	output, err := os.OpenFile(p.output, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	require.NoError(t, err)
	python, err := runtimes.Python(t.TempDir())
	require.NoError(t, err)
	p.cmd = exec.Command("Rscript", main, python)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.ExtraFiles = output, output, files
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, p.cmd.Start())
	for _, file := range append(files, output) {
		require.NoError(t, file.Close())
	}
	// A test that waits for ever ends with its process.
	limit := time.AfterFunc(time.Minute, func() { _ = p.cmd.Process.Kill() })
	t.Cleanup(func() {
		limit.Stop()
		near.Close()
		syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		p.cmd.Wait()
		if t.Failed() {
			t.Logf("the process printed:\n%s", p.printed())
		}
	})
	return p
}

// greet starts R with a task of testdata.
func greet(t *testing.T, target string) *process {
	t.Helper()
	p := launch(t)
	hello := p.next().(wire.ProcessHello)
	require.Equal(t, p.cmd.Process.Pid, hello.PID)
	require.Regexp(t, `^R \d+\.\d+\.\d+$`, hello.Runtime)
	dir, err := filepath.Abs("testdata")
	require.NoError(t, err)
	require.NoError(t, p.Write(wire.Hello{Version: wire.Version, Task: "the task", Target: target, Dir: dir, Slot: "gpu/3", Device: "GPU-1",
		Memory: 1 << 30, Room: 1 << 29, Mode: gpumux.ModePersistent}))
	return p
}

// start is greet up to ready.
func start(t *testing.T, function string) *process {
	t.Helper()
	p := greet(t, "tasks.R:"+function)
	require.Equal(t, wire.Ready{}, p.next())
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

// answer is what an item came to.
type answer struct {
	value    string
	fault    *wire.Raised
	attempts int
	out      int64
}

// take reads the answer of the item at position n.
func (p *process) take(n int) answer {
	p.t.Helper()
	switch m := p.next().(type) {
	case wire.Results:
		require.Equal(p.t, []any{p.run, n, 1}, []any{m.Run, m.N, len(m.Values)})
		require.True(p.t, json.Valid(m.Values[0]))
		attempts := 1
		if m.Attempts != nil {
			attempts = m.Attempts[0]
		}
		return answer{value: string(m.Values[0]), attempts: attempts, out: m.Out}
	case wire.Fault:
		require.Equal(p.t, []any{p.run, n}, []any{m.Run, m.N})
		require.NoError(p.t, p.Write(wire.Next{}))
		return answer{fault: &m.Raised, attempts: max(1, m.Attempts), out: m.Out}
	default:
		require.Fail(p.t, "unexpected message", "%#v", m)
		return answer{}
	}
}

// do sends items and waits for an answer to each, in order.
func (p *process) do(attempts int, items ...string) (answers []answer) {
	p.t.Helper()
	p.send(attempts, items...)
	for n := range items {
		answers = append(answers, p.take(n))
	}
	return answers
}

func (p *process) printed() string {
	data, err := os.ReadFile(p.output)
	require.NoError(p.t, err)
	return string(data)
}

// exit waits for the end of the process and returns its status.
func (p *process) exit() int {
	p.t.Helper()
	_, err := p.Read()
	require.ErrorIs(p.t, err, io.EOF)
	p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

func TestProcess_RefusesWhatIsNoProtocol(t *testing.T) {
	p := launch(t)
	require.IsType(t, wire.ProcessHello{}, p.next())
	require.NoError(t, p.Write(wire.Hello{Version: 2}))
	require.Equal(t, 64, p.exit())
	require.Contains(t, p.printed(), "gpumux: this runtime speaks wire version 1, the worker version 2;")

	p = start(t, "echo")
	require.NoError(t, p.Write(wire.ProcessHello{Version: 1}))
	require.Equal(t, 64, p.exit())
	require.Contains(t, p.printed(), "the worker says hello where only run and stop can come")

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
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGINT))
	require.Equal(t, "1", p.do(1, "1")[0].value, "SIGINT is not for it")
	require.NoError(t, p.Write(wire.Stop{}))
	require.Zero(t, p.exit())

	p = start(t, "echo")
	require.NoError(t, p.Close())
	p.cmd.Wait()
	require.Zero(t, p.cmd.ProcessState.ExitCode())
	require.Empty(t, p.printed())
}

func TestProcess_LoadFaults(t *testing.T) {
	for target, want := range map[string][2]string{
		"none.R:f":               {"FileNotFoundError", "there is no .*none.R; the folder has: broken.R, near.R, tasks.R"},
		"tasks.R:f":              {"NotFoundError", "tasks.R has no function f; it has: .*square.*"},
		"tasks.R:not_a_function": {"NotFoundError", "a value, not a function"},
		"broken.R:f":             {"simpleError", "not today"},
	} {
		p := greet(t, target)
		fault := p.next().(wire.Fault)
		require.Equal(t, want[0], fault.Raised.Class, target)
		require.Regexp(t, want[1], fault.Raised.Message)
		require.Equal(t, 65, p.exit())
	}
}

func TestProcess_WithoutJsonlite(t *testing.T) {
	p := launch(t, "R_LIBS=", "R_LIBS_SITE=/nowhere", "R_LIBS_USER=/nowhere")
	require.IsType(t, wire.ProcessHello{}, p.next())
	if m := p.next().(wire.Fault); true {
		require.Contains(t, m.Raised.Message, "R has no package jsonlite")
		require.Equal(t, 65, p.exit())
	}
}

func TestProcess_AnswersBeforeTheNextItemStarts(t *testing.T) {
	p := start(t, "until")
	path := filepath.Join(t.TempDir(), "go")
	p.send(1, "null", fmt.Sprintf("%q", path), "null")
	require.Equal(t, "true", p.take(0).value, "while the second item still runs")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.Equal(t, "false", p.take(1).value)
	require.Equal(t, "true", p.take(2).value)
}

func TestProcess_DeathLosesNoFinishedItem(t *testing.T) {
	p := start(t, "dies")
	p.send(1, `"1"`, `"2"`, `"die"`, `"4"`)
	require.Equal(t, `"1"`, p.take(0).value)
	require.Equal(t, `"2"`, p.take(1).value)
	_, err := p.Read()
	require.ErrorIs(t, err, io.EOF)
	p.cmd.Wait()
	require.Equal(t, syscall.SIGABRT, p.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
}

func TestProcess_SlotProgressAndDescriptors(t *testing.T) {
	p := start(t, "reports")
	p.send(1, "5")
	require.Equal(t, wire.ProgressReport{Run: 1, Value: json.RawMessage(`{"step":5}`)}, p.next())
	require.Equal(t, `"GPU-1"`, p.take(0).value)

	require.Equal(t, "0", start(t, "descriptors").do(1, "1")[0].value, "programs of the task do not have the wire's descriptors")
}

// A Python within R has the slot's limits for its frameworks, and nothing of the runtime
// on its path.
func TestProcess_PythonWithinR(t *testing.T) {
	rig.WithoutR(t, "reticulate")
	require.Equal(t, `["536870912",true,false]`, start(t, "python").do(1, "1")[0].value)
}

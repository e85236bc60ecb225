package bench

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/test/rig"
)

// newBench is a bench with a real Python on the CPU and no server.
func newBench(t *testing.T) *bench {
	t.Helper()
	interpreter := os.Getenv("GPUMUX_TEST_PYTHON")
	if _, err := exec.LookPath(interpreter); err != nil {
		interpreter = "python3"
	}
	b := &bench{Options: Options{Folder: t.TempDir(), Clients: []int{1, 2}}, report: &Report{}}
	b.Python = interpreter
	require.NoError(t, os.WriteFile(b.task(), []byte(python), 0o600))
	env := map[string]string{"PATH": os.Getenv("PATH")}
	b.around = map[int]map[string]string{1: env, 2: env}
	var err error
	b.on, err = b.probe(t.Context(), gpu.Device{Kind: gpu.KindCPU, UUID: gpu.CPU, Memory: 8 << 30})
	require.NoError(t, err)
	return b
}

func TestBare_RoundsGoOnWithTheItems(t *testing.T) {
	b := newBench(t)
	p, err := b.startBare(t.Context(), "light", 2)
	require.NoError(t, err)
	defer p.close()
	for _, calls := range []int{5000, 3000} {
		got, err := p.piece(t.Context(), calls)
		require.NoError(t, err)
		require.Len(t, got.times, 2*calls-2, "the first item of a process and round has no predecessor")
		require.Zero(t, got.perMap)
	}
}

func TestBare_InterruptionEndsTheProcesses(t *testing.T) {
	b := newBench(t)
	ctx, interrupt := context.WithCancelCause(t.Context())
	p, err := b.startBare(ctx, "light", 2)
	require.NoError(t, err)
	gone := errors.New("interrupted")
	go interrupt(gone)
	_, err = p.piece(ctx, 500_000_000) // hours of work
	require.ErrorIs(t, err, gone)
	p.close()
	for _, one := range p.procs {
		require.ErrorIs(t, one.cmd.Process.Signal(syscall.Signal(0)), os.ErrProcessDone)
	}
}

func TestBare_DeathIsToldWithItsLastWords(t *testing.T) {
	b := newBench(t)
	require.NoError(t, os.WriteFile(b.task(), []byte("raise SystemExit('no weights')"), 0o600))
	p, err := b.startBare(t.Context(), "light", 1)
	defer p.close()
	require.ErrorContains(t, err, "a bare process ended: exit status 1: no weights")
}

// A task imports its framework as tasks do, so that fresh items are forked with it; light
// needs none.
func TestWorkloads_TaskImportsItsFramework(t *testing.T) {
	b := newBench(t)
	if err := exec.CommandContext(t.Context(), b.Python, "-c", "import numpy").Run(); err != nil {
		rig.Because(t, rig.NumPy, "that is the framework")
	}
	runtimes, err := filepath.Abs("../runtimes/python")
	require.NoError(t, err)
	for workload, want := range map[string]string{"medium": "True\n", "light": "False\n"} {
		cmd := exec.CommandContext(t.Context(), b.Python, "-c", "import sys, workloads; print('numpy' in sys.modules)")
		cmd.Dir, cmd.Env = b.Folder, append(os.Environ(), "PYTHONPATH="+runtimes)
		for name, value := range b.env(workload, "numpy") {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Equal(t, want, string(out))
	}
}

// One item in five keeps what passes the budget, and a negative one never does.
func TestWorkloads_OOMKeepsMemory(t *testing.T) {
	b := newBench(t)
	if err := exec.CommandContext(t.Context(), b.Python, "-c", "import numpy").Run(); err != nil {
		rig.Because(t, rig.NumPy, "it measures the memory of that")
	}
	script := b.Folder + "/peak.py"
	require.NoError(t, os.WriteFile(script, []byte(`
import resource, sys, workloads
workloads.HOLD = 0
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for item in (-1, 0, 1, 2, 3): workloads.oom(item)
before = peak()
workloads.oom(4)
print(peak() - before)
`), 0o600))
	cmd := exec.CommandContext(t.Context(), b.Python, script)
	cmd.Env = append(os.Environ(), "BENCH_FRAMEWORK=numpy", "BENCH_BYTES=268435456")
	out, err := cmd.Output()
	require.NoError(t, err)
	var kilobytes int
	for _, c := range string(out) {
		if c >= '0' && c <= '9' {
			kilobytes = kilobytes*10 + int(c-'0')
		}
	}
	require.Greater(t, kilobytes, 256<<10)
	require.Less(t, kilobytes, 480<<10)
}

func TestProbe_SaysWhatIsMissing(t *testing.T) {
	b := newBench(t)
	b.Python = "no-such-python"
	_, err := b.probe(t.Context(), b.on.device)
	var lacking *LackingError
	require.ErrorAs(t, err, &lacking)
	require.ErrorContains(t, err, "give another Python")
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	_, err = b.probe(ctx, b.on.device)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// A relative path is the caller's; slots run elsewhere.
func TestProbe_RelativePython(t *testing.T) {
	b := newBench(t)
	path, err := exec.LookPath(b.Python)
	require.NoError(t, err)
	t.Chdir(filepath.Dir(path))
	b.Python = "./" + filepath.Base(path)
	found, err := b.probe(t.Context(), b.on.device)
	require.NoError(t, err)
	require.True(t, filepath.IsAbs(found.Interpreter))
}

func TestUsable_NoFramework(t *testing.T) {
	b := &bench{Options: Options{Workloads: []string{"light"}}}
	none := &target{Lacking: "numpy: not installed, torch: not installed"}
	require.NoError(t, b.usable(none))
	b.Workloads = Workloads
	require.ErrorContains(t, b.usable(none), "numpy: not installed, torch: not installed")
	require.ErrorContains(t, b.usable(none), "the workload light")
}

func TestProbe_OneFramework(t *testing.T) {
	b := newBench(t)
	b.Framework = "cupy" // never calculates on the CPU
	p, err := b.probe(t.Context(), b.on.device)
	require.NoError(t, err)
	require.Empty(t, p.Framework)
	require.Equal(t, "cupy: ", p.Lacking[:6])
	require.NotContains(t, p.Lacking, "numpy")
}

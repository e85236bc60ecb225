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
	"github.com/gpumux/gpumux/internal/skip"
)

// newBench is a bench with a real Python on the CPU and no server.
func newBench(t *testing.T) *bench {
	t.Helper()
	python := os.Getenv("GPUMUX_TEST_PYTHON")
	if _, err := exec.LookPath(python); err != nil {
		python = "python3"
	}
	b := &bench{o: Options{Folder: t.TempDir(), Clients: []int{1, 2}, Quick: true, Say: func(string) {}}, report: &Report{}}
	var err error
	b.interpreter, err = findPython(t.Context(), python)
	require.NoError(t, err)
	b.task, err = writeTask(b.o.Folder)
	require.NoError(t, err)
	b.on = &target{device: gpu.Device{Kind: gpu.KindCPU, UUID: gpu.CPU, Memory: 8 << 30}}
	env := map[string]string{"PATH": os.Getenv("PATH")}
	b.around = map[int]map[string]string{1: env, 2: env}
	b.on.probe, err = b.probeOn(t.Context(), b.on.device)
	require.NoError(t, err)
	return b
}

func TestBare_RoundsGoOnWithTheItems(t *testing.T) {
	b := newBench(t)
	p, err := b.startBare(t.Context(), b.on, workload{name: "light"}, 2)
	require.NoError(t, err)
	defer p.close()
	require.Positive(t, p.start)
	for _, calls := range []int{5000, 3000} {
		got, err := p.round(t.Context(), calls)
		require.NoError(t, err)
		require.Len(t, got.times, 2*calls-2, "the first item of a process and round has no predecessor")
		require.Zero(t, got.perMap)
	}
}

func TestBare_InterruptionEndsTheProcesses(t *testing.T) {
	b := newBench(t)
	ctx, interrupt := context.WithCancelCause(t.Context())
	p, err := b.startBare(ctx, b.on, workload{name: "light"}, 2)
	require.NoError(t, err)
	gone := errors.New("interrupted")
	go interrupt(gone)
	_, err = p.round(ctx, 500_000_000) // hours of work
	require.ErrorIs(t, err, gone)
	p.close()
	for _, one := range p.procs {
		require.ErrorIs(t, one.cmd.Process.Signal(syscall.Signal(0)), os.ErrProcessDone)
	}
}

func TestBare_DeathIsToldWithItsLastWords(t *testing.T) {
	b := newBench(t)
	require.NoError(t, os.WriteFile(b.task, []byte("raise SystemExit('no weights')"), 0o600))
	p, err := b.startBare(t.Context(), b.on, workload{name: "light"}, 1)
	defer p.close()
	require.ErrorContains(t, err, "a bare process ended: exit status 1: no weights")
}

func TestCalibrate_ShrinksToTheLimit(t *testing.T) {
	b := newBench(t)
	if b.on.probe.Framework == "" {
		skip.Because(t, skip.Framework, b.on.probe.lacking())
	}
	for limit, want := range map[string]int{"1000": 2048, "0": 64} {
		found := map[string]struct{ Size, Wanted int }{}
		require.NoError(t, b.ask(t.Context(), append(os.Environ(), environ(workload{name: "heavy"}.env(b.on.probe.Framework, 1))...), &found, "measure", limit, "heavy"))
		require.Equal(t, want, found["heavy"].Size)
		require.Equal(t, 2048, found["heavy"].Wanted)
	}
}

// One item in five keeps what passes the budget, and a negative one never does.
func TestWorkloads_OOMKeepsMemory(t *testing.T) {
	b := newBench(t)
	if err := exec.CommandContext(t.Context(), b.interpreter, "-c", "import numpy").Run(); err != nil {
		skip.Because(t, skip.NumPy, "it measures the memory of that")
	}
	script := b.o.Folder + "/peak.py"
	require.NoError(t, os.WriteFile(script, []byte(`
import resource, sys, workloads
workloads.HOLD = 0
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for item in (-1, 0, 1, 2, 3): workloads.oom(item)
before = peak()
workloads.oom(4)
print(peak() - before)
`), 0o600))
	w := workload{name: "oom", memory: 256 << 20}
	cmd := exec.CommandContext(t.Context(), b.interpreter, script)
	cmd.Env = append(os.Environ(), environ(w.env("numpy", 1))...)
	out, err := cmd.Output()
	require.NoError(t, err, withStderr(err))
	var kilobytes int
	for _, c := range string(out) {
		if c >= '0' && c <= '9' {
			kilobytes = kilobytes*10 + int(c-'0')
		}
	}
	require.Greater(t, kilobytes, 256<<10)
	require.Less(t, kilobytes, 480<<10)
}

func TestFindPython_SaysWhatIsMissing(t *testing.T) {
	_, err := findPython(t.Context(), "no-such-python")
	var lacking *Lacking
	require.ErrorAs(t, err, &lacking)
	require.ErrorContains(t, err, "give another with --python")
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	_, err = findPython(ctx, "python3")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestTarget_NoFramework(t *testing.T) {
	bareCPU := &target{probe: probe{Lacking: map[string]string{"torch": "not installed", "numpy": "not installed"}}}
	require.NoError(t, bareCPU.usable([]string{"light"}))
	require.ErrorContains(t, bareCPU.usable(Workloads), "numpy: not installed, torch: not installed")
	require.ErrorContains(t, bareCPU.usable(Workloads), "--workloads light")
}

// A GPU would be done with the CPU's matrices before a call is.
func TestMeasure_GPUMultipliesLargerMatrices(t *testing.T) {
	b := newBench(t)
	imitation := `
__version__ = "2"
class Tensor:
    def __getitem__(self, at): return self
    def item(self): return 0
class cuda:
    is_available = staticmethod(lambda: True)
    get_device_name = staticmethod(lambda device: "an imitation")
class device:
    def __init__(self, type): self.type = type
def full(shape, value, device): return Tensor()
def matmul(a, b): return a
`
	require.NoError(t, os.WriteFile(filepath.Join(b.o.Folder, "torch.py"), []byte(imitation), 0o600))
	found := map[string]struct{ Size, Wanted int }{}
	env := append(os.Environ(), environ(map[string]string{"BENCH_FRAMEWORK": "torch", "PYTHONPATH": b.o.Folder})...)
	require.NoError(t, b.ask(t.Context(), env, &found, "measure", "1000", "medium", "heavy"))
	require.Equal(t, 4096, found["medium"].Size)
	require.Equal(t, 8192, found["heavy"].Size)
	require.Equal(t, 8192, found["heavy"].Wanted)
}

func TestProbe_OneFramework(t *testing.T) {
	b := newBench(t)
	b.o.Framework = "cupy" // never calculates on the CPU
	p, err := b.probeOn(t.Context(), b.on.device)
	require.NoError(t, err)
	require.Empty(t, p.Framework)
	require.Len(t, p.Lacking, 1)
	require.Contains(t, p.Lacking, "cupy")
}

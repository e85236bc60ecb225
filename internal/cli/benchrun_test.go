package cli

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/report"
	"github.com/gpumux/gpumux/internal/test/rig"
)

// newBench is a bench with a real Python on the CPU and no server.
func newBench(t *testing.T) *bench {
	t.Helper()
	interpreter := os.Getenv("GPUMUX_TEST_PYTHON")
	if _, err := exec.LookPath(interpreter); err != nil {
		interpreter = "python3"
	}
	b := &bench{python: interpreter, app: &app{console: report.NewConsole(io.Discard)}, file: filepath.Join(t.TempDir(), "workloads.py"),
		device: gpu.Device{Kind: gpu.KindCPU, UUID: gpu.CPU}}
	require.NoError(t, os.WriteFile(b.file, []byte(benchScript), 0o600))
	return b
}

func TestBare_RoundsGoOnWithTheItems(t *testing.T) {
	b := newBench(t)
	p, err := b.startBare(t.Context(), benchStage{Workload: "light", Clients: 2}, map[string]string{"PATH": os.Getenv("PATH")})
	require.NoError(t, err)
	defer p.close()
	for _, calls := range []int{5000, 3000} {
		got, err := p.piece(t.Context(), calls)
		require.NoError(t, err)
		require.Equal(t, []int{calls, calls}, []int{len(got[0]), len(got[1])})
	}
}

func TestBare_DeathIsToldWithItsLastWords(t *testing.T) {
	b := newBench(t)
	require.NoError(t, os.WriteFile(b.file, []byte("raise SystemExit('no weights')"), 0o600))
	_, err := b.startBare(t.Context(), benchStage{Workload: "light", Clients: 1}, map[string]string{"PATH": os.Getenv("PATH")})
	require.ErrorContains(t, err, "a bare process ended: exit status 1: no weights")
}

// A task imports its framework as tasks do, so that fresh items are forked with it; light
// needs none.
func TestWorkloads_TaskImportsItsFramework(t *testing.T) {
	b := newBench(t)
	if err := exec.CommandContext(t.Context(), b.python, "-c", "import numpy").Run(); err != nil {
		rig.Because(t, rig.NumPy, "that is the framework")
	}
	b.framework = "numpy"
	runtimes, err := filepath.Abs("../../clients/python")
	require.NoError(t, err)
	for workload, want := range map[string]string{"medium": "True\n", "light": "False\n"} {
		cmd := exec.CommandContext(t.Context(), b.python, "-c", "import sys, workloads; print('numpy' in sys.modules)")
		cmd.Dir, cmd.Env = filepath.Dir(b.file), append(os.Environ(), "PYTHONPATH="+runtimes)
		for name, value := range b.env(workload) {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Equal(t, want, string(out))
	}
}

func TestProbe_SaysWhatIsMissing(t *testing.T) {
	b := newBench(t)
	b.python = "no-such-python"
	require.ErrorContains(t, b.probe(t.Context()), "give another --python")
}

// A relative path is the caller's; slots run elsewhere.
func TestProbe_RelativePython(t *testing.T) {
	b := newBench(t)
	path, err := exec.LookPath(b.python)
	require.NoError(t, err)
	t.Chdir(filepath.Dir(path))
	b.python = "./" + filepath.Base(path)
	b.workloads = []string{"light"}
	require.NoError(t, b.probe(t.Context()))
	require.True(t, filepath.IsAbs(b.python))
}

// CuPy never calculates on the CPU; light needs nothing that does.
func TestChoose_NoFramework(t *testing.T) {
	b := newBench(t)
	b.framework, b.pool, b.workloads = "cupy", "cpu", []string{"light"}
	require.NoError(t, b.choose(t.Context()))
	b.framework, b.workloads = "cupy", benchWorkloads
	err := b.choose(t.Context())
	require.ErrorContains(t, err, "cupy: ")
	require.ErrorContains(t, err, "the workload light")
	require.NotContains(t, err.Error(), "numpy: ")
}

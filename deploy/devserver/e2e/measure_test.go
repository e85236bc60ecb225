package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/skip"
	"github.com/gpumux/gpumux/internal/wait"
)

// newMeasure is a shell whose temporary files lie in a folder of its own, so that what is left behind can be seen.
func newMeasure(t *testing.T) (s *shell, python string) {
	t.Helper()
	s = newShell(t)
	require.NoError(t, os.Mkdir(s.path("tmp"), 0o755))
	s.env = append(s.env, "TMPDIR="+s.path("tmp"))
	python = os.Getenv("GPUMUX_TEST_PYTHON")
	if _, err := exec.LookPath(python); err != nil {
		python = "python3"
	}
	return s, python
}

// left lists what lies in the folder for temporary files.
func (s *shell) left() []string {
	s.t.Helper()
	entries, err := os.ReadDir(s.path("tmp"))
	require.NoError(s.t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// alone waits until no process of a run is left.
func (s *shell) alone() {
	s.t.Helper()
	wait.For(s.t, func() bool { return len(children(s.t, s.dir))+len(mentioning(s.t, s.dir)) == 0 },
		time.Minute, 20*time.Millisecond, "processes outlived gpumux")
}

func TestBench_Quick(t *testing.T) {
	t.Parallel()
	s, python := newMeasure(t)
	workloads := "medium,light"
	if exec.Command(python, "-c", "import numpy").Run() != nil {
		t.Log("without NumPy only light is measured")
		workloads = "light"
	}
	p := s.run(0, "bench", "--quick", "--workloads", workloads, "--items", "8", "--slots", "2", "--pool", "cpu", "--python", python,
		"--json", "r.json", "--html", "r.html")
	table := p.stdout.String()
	var report struct {
		Slots int
		Rows  []struct {
			Workload, Way                string
			Slots, Items                 int
			MinSeconds, MedianSeconds    float64
			TotalSeconds, ItemsPerSecond float64
			OfBare                       float64
		}
		Sweep  []struct{ Slots int }
		Advice []string
	}
	require.NoError(t, json.Unmarshal([]byte(s.file("r.json")), &report))
	var ways []string
	for _, row := range report.Rows {
		if row.Workload != "light" {
			continue
		}
		ways = append(ways, row.Way)
		require.GreaterOrEqual(t, row.Items, 8, row.Way)
		require.Positive(t, row.MedianSeconds, row.Way)
		require.GreaterOrEqual(t, row.MedianSeconds, row.MinSeconds, row.Way)
		require.Positive(t, row.OfBare, row.Way)
		require.InEpsilon(t, float64(row.Items)/row.TotalSeconds, row.ItemsPerSecond, 1e-6, row.Way)
		require.Contains(t, table, row.Way)
	}
	require.Equal(t, []string{"bare", "bare", "persistent", "fresh", "sequential"}, ways)
	require.NotEmpty(t, report.Advice)
	for _, line := range report.Advice {
		require.Contains(t, table, line)
	}
	if workloads != "light" {
		require.Len(t, report.Sweep, 2)
	}
	require.Contains(t, s.file("r.html"), "<svg")
	require.Empty(t, s.left(), "files of the run")
	s.alone()
}

func TestBench_Compare(t *testing.T) {
	t.Parallel()
	s, python := newMeasure(t)
	p := s.run(0, "bench", "--quick", "--compare", "--items", "2000", "--slots", "2", "--python", python, "--json", "-")
	var report struct {
		Comparison struct {
			Items, Activities int
			Rounds            []map[string]float64
		}
	}
	require.NoError(t, json.Unmarshal([]byte(p.stdout.String()), &report), "JSON alone on standard output")
	require.Equal(t, 2000, report.Comparison.Items)
	require.Len(t, report.Comparison.Rounds, 1)
	for _, tool := range []string{"gpumux", "poolOne", "poolDefault", "activity"} {
		require.Positive(t, report.Comparison.Rounds[0][tool], tool)
	}
	require.Contains(t, p.stderr.String(), "plain Temporal")
	require.Empty(t, s.left())
}

// Ctrl-C while bare processes run and while a map runs: nothing is left, neither processes nor files.
func TestBench_Interrupted(t *testing.T) {
	t.Parallel()
	for name, when := range map[string]string{"Bare": "light: bare processes", "Map": "light: persistent", "Pool": "multiprocessing.Pool"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, python := newMeasure(t)
			args := []string{"bench", "--workloads", "light", "--items", "200000", "--python", python}
			if name == "Pool" {
				args = []string{"bench", "--compare", "--slots", "2", "--items", "100000", "--python", python}
			}
			p := s.begin(args...)
			require.Eventually(t, func() bool { return strings.Contains(p.stderr.String(), when) }, 2*time.Minute, 10*time.Millisecond)
			require.NoError(t, p.Process.Signal(syscall.SIGINT))
			require.Equal(t, 130, p.code(), p.stderr.String())
			require.Empty(t, p.stdout.String())
			require.Empty(t, s.left())
			s.alone()
		})
	}
}

// mentioning are the command lines of processes that name a folder.
func mentioning(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	require.NoError(t, err)
	var found []string
	for _, e := range entries {
		if command, err := os.ReadFile("/proc/" + e.Name() + "/cmdline"); err == nil && strings.Contains(string(command), dir) {
			found = append(found, strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return found
}

// A budget ends the item that passes it and no other.
func TestBench_OutOfMemory(t *testing.T) {
	t.Parallel()
	s, python := newMeasure(t)
	if exec.Command(python, "-c", "import numpy").Run() != nil {
		skip.Because(t, skip.NumPy, python)
	}
	p := s.run(0, "bench", "--quick", "--workloads", "oom", "--items", "5", "--slots", "1", "--pool", "cpu", "--python", python)
	require.Contains(t, p.stdout.String(), "1 budget, the other 4 finished")
}

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/internal/test/rig"
)

// newMeasure is a shell whose temporary files lie in a folder of its own, so that what is
// left behind can be seen.
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
	rig.Wait(s.t, func() bool { return len(children(s.t, s.dir))+len(mentioning(s.t, s.dir)) == 0 },
		time.Minute, 20*time.Millisecond, "processes outlived gpumux")
}

func TestBench_Quick(t *testing.T) {
	t.Parallel()
	s, python := newMeasure(t)
	p := s.run(0, "bench", "--workloads", "light", "--limit", "1s", "--clients", "2", "--pool", "cpu", "--framework", "numpy", "--python", python,
		"--json", "r.json")
	table := p.stdout.String()
	type quartiles struct {
		Q1, Median, Q3 float64
		Count          int
	}
	var report struct {
		Rows []struct {
			Workload, Way, Sharing              string
			Clients, Items                      int
			ItemsPerSecond, OfBare, ItemSeconds quartiles
		}
	}
	require.NoError(t, json.Unmarshal([]byte(s.file("r.json")), &report))
	var ways []string
	for _, row := range report.Rows {
		ways = append(ways, fmt.Sprint(row.Way, row.Sharing, row.Clients))
		require.Contains(t, table, row.Way)
		require.Positive(t, row.ItemSeconds.Median, row.Way)
		if row.Way != "bare" && row.Clients > 1 && row.ItemsPerSecond.Count == 0 {
			require.Contains(t, table, "unknown: the slots hardly ever worked at the same time", row.Way)
			continue // on a busy machine
		}
		s := row.ItemsPerSecond
		require.Positive(t, s.Count, row.Way)
		require.Positive(t, s.Q1, row.Way)
		require.IsNonDecreasing(t, []float64{s.Q1, s.Median, s.Q3}, row.Way)
		require.Equal(t, row.Way != "bare", row.OfBare.Count > 0, row.Way)
	}
	require.Equal(t, []string{"bare1", "persistentdefault1", "bare2", "persistentdefault2", "freshdefault2"}, ways)
	require.Empty(t, s.left(), "files of the run")
	s.alone()
}

// Slots are measured under every way to share that a GPU allows. The driver and the MPS
// daemon are stand-ins.
func TestLong_BenchSharesAGPU(t *testing.T) {
	for name, c := range map[string]struct {
		gpu  gputest.GPU
		args []string
		says []string
		not  string
	}{
		"OnlyMPS": {gputest.GPU{}, []string{"--sharing", "mps", "--no-fresh"}, []string{`persistent +default +2 +\d`, `persistent +mps +2 +\d`}, `fresh`},
		"MPS": {gputest.GPU{}, nil, []string{`persistent +default +2 +\d`, `persistent +mps +1 +\d`, `persistent +mps +2 +\d`,
			`fresh +default +2`}, "note"},
		"MIG": {gputest.GPU{Instances: []gputest.Instance{{}}}, nil, []string{`persistent +default +2 +\d`,
			"note: sharing mps is not measured: .* is a MIG instance"}, "persistent +mps"},
	} {
		t.Run(name, func(t *testing.T) {
			m := gputest.Prepare(t, gputest.State{GPUs: []gputest.GPU{c.gpu}})
			s, python := newMeasure(t)
			s.env = append(s.env, gputest.StateVariable+"="+m.File, "LD_LIBRARY_PATH="+m.Folder, "PATH="+m.Folder+":"+os.Getenv("PATH"))
			args := []string{"bench", "--workloads", "light", "--limit", "1s", "--clients", "2", "--python", python}
			p := s.run(0, append(args, c.args...)...)
			require.NotRegexp(t, c.not, p.stdout.String())
			for _, text := range c.says {
				require.Regexp(t, text, p.stdout.String())
			}
			s.alone()
		})
	}
}

// Ctrl-C while the ways take turns and while a map runs: nothing is left, neither
// processes nor files but the report of what has been measured.
func TestLong_BenchInterrupted(t *testing.T) {
	for name, when := range map[string]string{"Turns": "light: persistent default 2", "Map": "light: fresh default 2"} {
		t.Run(name, func(t *testing.T) {
			s, python := newMeasure(t)
			kept := filepath.Join(t.TempDir(), "kept.json")
			p := s.begin("bench", "--python", python, "--clients", "2", "--json", kept, "--workloads", "light", "--limit", "2s")
			require.Eventually(t, func() bool { return strings.Contains(p.stderr.String(), when) }, 2*time.Minute, 10*time.Millisecond)
			require.NoError(t, p.Process.Signal(syscall.SIGINT))
			require.Equal(t, 130, p.code(), p.stderr.String())
			require.Empty(t, p.stdout.String())
			report, err := os.ReadFile(kept)
			require.NoError(t, err)
			require.Contains(t, string(report), `"way": "persistent"`)
			require.Empty(t, s.left())
			s.alone()
		})
	}
}

// mentioning are the command lines of processes that name a folder.
func mentioning(t testing.TB, dir string) []string {
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

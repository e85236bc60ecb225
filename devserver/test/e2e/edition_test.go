package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/devserver/test/devservertest"
	"github.com/gpumux/gpumux/internal/edition"
	"github.com/gpumux/gpumux/workers/config"
	"github.com/gpumux/gpumux/workflows"
)

// editedPy tells which edition of a module it runs with. Item 20 edits that module, once,
// where it is told to.
const editedPy = `
import near, os, time
HERE = os.path.dirname(os.path.abspath(__file__))
def plain(x):
    return near.value
def edit(x):
    time.sleep(0.005)
    mark = os.path.join(HERE, "edited")
    if x == 20 and not os.path.exists(mark):
        open(mark, "w").close()
        open(os.path.join(HERE, "near.py"), "w").write("value = 'another'\n")
    return near.value
`

// near writes the module, with another length for each value.
func near(t testing.TB, dir, value string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "near.py"), fmt.Appendf(nil, "value = %q\n", value), 0o644))
}

// editing is a configuration like that of gpumux dev, over a folder with the task and its
// module.
func (s *site) editing(dir string, slots int) config.Config {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(filepath.Join(dir, "edited.py"), []byte(editedPy), 0o644))
	near(s.t, dir, "first")
	return onCPU(cpuPool{
		Pool: "cpu", Slots: slots, Dir: dir, Store: s.store,
		Tasks: map[string]config.Task{"*": {PythonDir: dir}},
	})
}

// counted counts what items came to.
func counted(t *testing.T, results []gpumux.Result) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for _, r := range results {
		require.Nil(t, r.Fault)
		var value string
		require.NoError(t, json.Unmarshal(r.Value, &value))
		counts[value]++
	}
	return counts
}

// A map that starts after an edit runs wholly with the new code, although the processes
// of the last one are still there.
func TestEdition_AnEditedModuleIsLoadedForTheNextMap(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.serve(s.editing(s.dir, 4))
	in := gpumux.MapInput{Task: "edited:plain", Range: &gpumux.Range{End: 200}, Ladder: []string{"cpu"}, Chunk: 3}
	for _, value := range []string{"first", "second..", "third....."} {
		near(t, s.dir, value)
		sum, err := s.run(in)
		require.NoError(t, err)
		require.Equal(t, map[string]int{value: 200}, counted(t, s.results(sum)))
	}
}

// Code that is edited while a map runs ends the map with what to do. With the code as it
// was the map goes on.
func TestEdition_EditedInTheMiddle(t *testing.T) {
	t.Parallel()
	for _, mode := range []gpumux.Mode{gpumux.ModePersistent, gpumux.ModeFresh} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.serve(s.editing(s.dir, 2))
			in := gpumux.MapInput{
				Task: "edited:edit", Range: &gpumux.Range{End: 60}, Ladder: []string{"cpu"}, Chunk: 2, Mode: mode, Output: "out/r.jsonl",
			}
			_, err := s.run(in)
			gone := workflows.FaultOf(err)
			require.NotNil(t, gone, "%v", err)
			require.NotEmpty(t, gone.Edition)
			require.Equal(t, gpumux.FaultBadInput, gone.Kind)
			for _, text := range []string{"near.py", "start a new map", gone.Edition} {
				require.Contains(t, gone.Error(), text)
			}
			near(t, s.dir, "first")
			sum, err := s.run(in)
			require.NoError(t, err)
			require.Equal(t, map[string]int{"first": 60}, counted(t, s.results(sum)))
			require.Less(t, sum.Chunks, int64(30), "what had finished was kept")
		})
	}
}

// Where only some workers of a pool have the edition, they run the map.
func TestEdition_WorkersWithOtherCodeLeaveTheMapToThoseThatHaveIt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.serve(s.editing(s.dir, 1))
	other := newShell(t)
	other.write("edited.py", editedPy)
	near(t, other.dir, "another")
	server := devservertest.Run(t)
	other.write("worker.yaml", fmt.Sprintf("temporal: {address: %q, namespace: %q}\nstore: %q\npools: [{name: cpu, devices: cpu, slots: 3}]\n"+
		"tasks: {\"*\": {python_dir: .}}\n", server.Address(), s.namespace, s.store))
	worker := other.begin("worker", "-f", "worker.yaml")
	require.Eventually(t, func() bool { return strings.Contains(worker.stderr.String(), "worker started") }, time.Minute, 20*time.Millisecond)

	own := edition.Code{Dir: s.dir, Target: "edited.py:plain"}.Edition()
	theirs := edition.Code{Dir: other.dir, Target: "edited.py:plain"}.Edition()
	for code, value := range map[string]string{own: "first", theirs: "another"} {
		sum, err := s.run(gpumux.MapInput{Task: "edited:plain", Range: &gpumux.Range{End: 60}, Ladder: []string{"cpu"}, Chunk: 2, Edition: code})
		require.NoError(t, err)
		require.Equal(t, map[string]int{value: 60}, counted(t, s.results(sum)))
	}
}

// A local map whose code is edited while it runs keeps what has finished for the same
// code, and the new code is a new map.
func TestLocal_EditedInTheMiddle(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.write("edited.py", editedPy)
	near(t, s.dir, "first")
	command := []string{"map", "edited.py:edit", "--range", "0:60", "--local", "--mode", "fresh", "--chunk", "2", "--slots", "2", "--out", "r.jsonl"}
	values := func() map[string]int {
		t.Helper()
		counts := map[string]int{}
		for _, line := range s.lines(s.file("r.jsonl")) {
			counts[string(line["value"])]++
		}
		return counts
	}
	stopped := s.begin(command...)
	require.NotZero(t, stopped.code(), &stopped.stderr)
	require.Contains(t, stopped.stderr.String(), "start a new map")
	require.NoFileExists(t, s.path("r.jsonl"))
	s.run(0, command...)
	require.Equal(t, map[string]int{`"another"`: 60}, values(), "the new code is a new map")
	require.NoError(t, os.Remove(s.path("r.jsonl")))
	near(t, s.dir, "first")
	again := s.run(0, command...)
	require.Contains(t, again.stderr.String(), "going on with map")
	require.Equal(t, map[string]int{`"first"`: 60}, values())
}

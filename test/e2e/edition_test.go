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
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/workers/config"
	"github.com/gpumux/gpumux/workflows"
)

// editedPy tells which edition of a module it runs with. Item 20 edits that module, once.
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

// mapped counts the values of a map inside the workflow.
func mapped(ctx workflow.Context, in gpumux.MapInput) (map[string]int, error) {
	items := make([]int, 60)
	for i := range items {
		items[i] = i
	}
	all, err := workflows.Map[int, string](ctx, in, items)
	if err != nil {
		return nil, err
	}
	values, err := all.Values()
	counts := map[string]int{}
	for _, value := range values {
		counts[value]++
	}
	return counts, err
}

// TestEdition_EditedUnderMaps edits code before, between and under maps, one after the
// other on one worker.
func TestEdition_EditedUnderMaps(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.serve(s.editing(s.dir, 2))
	service(t, s.client, map[string]any{"mapped": mapped})
	again := func() {
		near(t, s.dir, "first")
		require.NoError(t, os.Remove(filepath.Join(s.dir, "edited")))
	}
	in := gpumux.MapInput{Task: "edited:edit", Range: &gpumux.Range{End: 60}, Ladder: []string{"cpu"}, Chunk: 2, Output: "out/r.jsonl"}

	// With the code as it was the map goes on.
	_, err := s.run(in)
	gone := workflows.FaultOf(err)
	require.NotNil(t, gone, "%v", err)
	require.NotEmpty(t, gone.Edition)
	require.Equal(t, gpumux.FaultBadInput, gone.Kind)
	for _, text := range []string{"near.py", "start a new map", gone.Edition, "the same map started again runs only the rest"} {
		require.Contains(t, gone.Error(), text)
	}
	near(t, s.dir, "first")
	sum, err := s.run(in)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"first": 60}, counted(t, s.results(sum)))
	require.Less(t, sum.Chunks, int64(30), "what had finished was kept")

	// A map that starts after an edit runs wholly with the new code, although the processes
	// of the last one are still there.
	plain := gpumux.MapInput{Task: "edited:plain", Range: &gpumux.Range{End: 200}, Ladder: []string{"cpu"}, Chunk: 3}
	for _, value := range []string{"second..", "third....."} {
		near(t, s.dir, value)
		sum, err := s.run(plain)
		require.NoError(t, err)
		require.Equal(t, map[string]int{value: 200}, counted(t, s.results(sum)))
	}

	// A map that takes any edition goes on with the new code, from its start, or started
	// again after one with an edition has ended.
	again()
	in.Edition, in.Output = gpumux.AnyEdition, ""
	sum, err = s.run(in)
	require.NoError(t, err)
	counts := counted(t, s.results(sum))
	require.Len(t, counts, 2)
	require.GreaterOrEqual(t, counts["first"], 18, "all before item 20 but those of the chunk beside it")
	require.Equal(t, 60, counts["first"]+counts["another"])
	again()
	in.Edition, in.Output = "", "any/r.jsonl"
	_, err = s.run(in)
	require.NotEmpty(t, workflows.FaultOf(err).Edition)
	_, err = s.run(in)
	require.ErrorContains(t, err, `or give the edition "any", which leaves results of other code as they are`)
	in.Edition = gpumux.AnyEdition
	sum, err = s.run(in)
	require.NoError(t, err)
	require.Len(t, counted(t, s.results(sum)), 2)
	require.Less(t, sum.Chunks, int64(30), "what had finished was kept")

	// Nothing of a map inside a workflow is stored.
	again()
	inside := func(edition string) (counts map[string]int, err error) {
		in := gpumux.MapInput{Task: "edited:edit", Edition: edition, Ladder: []string{"cpu"}, Chunk: 2}
		run, err := s.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: "service"}, mapped, in)
		require.NoError(t, err)
		return counts, run.Get(t.Context(), &counts)
	}
	_, err = inside("")
	gone = workflows.FaultOf(err)
	require.NotNil(t, gone, "%v", err)
	require.NotEmpty(t, gone.Edition)
	require.Contains(t, gone.Hint, "results of a map inside a workflow are not stored, so all its items run again")
	require.NotContains(t, err.Error(), "is kept")
	again()
	counts, err = inside(gpumux.AnyEdition)
	require.NoError(t, err)
	require.Len(t, counts, 2)
	require.Equal(t, 60, counts["first"]+counts["another"])
}

// Where only some workers of a pool have the edition, they run the map.
func TestEdition_WorkersWithOtherCodeLeaveTheMapToThoseThatHaveIt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	here := s.serve(s.editing(s.dir, 1)).Describe()
	other := newShell(t)
	s.editedWorker(other, "another", 3)

	first := launch.Code{Dir: s.dir, Target: "edited.py:plain"}.Edition()
	second := launch.Code{Dir: other.dir, Target: "edited.py:plain"}.Edition()
	for _, c := range []client.Client{s.client, older{s.client}} {
		f, watch := &fleet.Fleet{Client: c, Namespace: s.namespace}, contract.WatchQueue(names.PoolQueue("cpu"))
		rig.Wait(t, func() bool { return f.OthersHave(t.Context(), watch, "", "edited:plain", first) }, time.Minute, 20*time.Millisecond)
		require.True(t, f.OthersHave(t.Context(), watch, here.Identity, "edited:plain", second), "another worker")
		require.False(t, f.OthersHave(t.Context(), watch, here.Identity, "edited:plain", first), "only the worker that asks")
		require.False(t, f.OthersHave(t.Context(), watch, "", "edited:none", first), "of another task")
	}
	for code, value := range map[string]string{first: "first", second: "another"} {
		sum, err := s.run(gpumux.MapInput{Task: "edited:plain", Range: &gpumux.Range{End: 60}, Ladder: []string{"cpu"}, Chunk: 2, Edition: code})
		require.NoError(t, err)
		require.Equal(t, map[string]int{value: 60}, counted(t, s.results(sum)))
	}
}

// editedWorker starts a worker of the site in a process and folder of its own.
func (s *site) editedWorker(at *shell, value string, slots int) *program {
	s.t.Helper()
	at.write("edited.py", editedPy)
	near(s.t, at.dir, value)
	at.at(s)
	at.write("worker.yaml", fmt.Sprintf("store: %q\npools: [{name: cpu, devices: cpu, slots: %d}]\ntasks: {\"*\": {python_dir: .}}\n", s.store, slots))
	w := at.begin("worker", "-f", "worker.yaml")
	rig.Wait(s.t, func() bool { return strings.Contains(w.stderr.String(), "worker started") }, time.Minute, 20*time.Millisecond, &w.stderr)
	return w
}

// attempts is how often the chunks of a map that runs were tried at most, once one has
// begun.
func (s *site) attempts(run client.WorkflowRun) (highest int32) {
	described, err := s.client.DescribeWorkflowExecution(s.t.Context(), run.GetID(), "")
	require.NoError(s.t, err)
	for _, a := range described.GetPendingActivities() {
		if a.GetActivityType().GetName() == contract.RunChunk && a.GetLastStartedTime() != nil {
			highest = max(highest, a.GetAttempt())
		}
	}
	return highest
}

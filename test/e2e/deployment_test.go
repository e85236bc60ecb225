package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/test/devservertest"
)

// current makes a version of the deployment gpus current, as soon as a worker has it.
func (s *site) current(build string) {
	s.t.Helper()
	rig.Wait(s.t, func() bool {
		_, err := s.client.WorkerDeploymentClient().GetHandle("gpus").
			SetCurrentVersion(s.t.Context(), client.WorkerDeploymentSetCurrentVersionOptions{BuildID: build})
		return err == nil
	}, time.Minute, 100*time.Millisecond, "version "+build)
}

// queues are those of a version of the deployment gpus, each once.
func (s *site) queues(build string) (names []string) {
	s.t.Helper()
	version, err := s.client.WorkerDeploymentClient().GetHandle("gpus").
		DescribeVersion(s.t.Context(), client.WorkerDeploymentDescribeVersionOptions{BuildID: build})
	require.NoError(s.t, err)
	for _, each := range version.Info.TaskQueuesInfos {
		names = append(names, each.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// A version has at most a hundred queues and keeps those of dead workers. So it has none
// that names a worker.
func TestDeployment_HasNoQueueOfAWorker(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.config("gpu", 2)
	c.Temporal.Deployment, c.Temporal.Build = "gpus", "v7"
	s.serve(c)
	s.current("v7")

	run := s.start(gpumux.MapInput{Task: "double", Items: items(1, 2), Ladder: []string{"gpu"}})
	var sum gpumux.Summary
	require.NoError(t, run.Get(t.Context(), &sum))
	require.EqualValues(t, 2, sum.Succeeded)
	d, err := s.client.DescribeWorkflowExecution(t.Context(), run.GetID(), "")
	require.NoError(t, err)
	versioning := d.GetWorkflowExecutionInfo().GetVersioningInfo()
	require.Equal(t, enums.VERSIONING_BEHAVIOR_PINNED, versioning.GetBehavior())
	require.Equal(t, "v7", versioning.GetDeploymentVersion().GetBuildId())

	person := newShell(t)
	at := []string{"--address", devservertest.Run(t).Address(), "--namespace", s.namespace}
	listed := person.run(0, append([]string{"workers"}, at...)...)
	require.Contains(t, listed.stdout.String(), "gpu ")
	shown := person.run(0, append([]string{"show", run.GetID()}, at...)...)
	require.Contains(t, shown.stdout.String(), "succeeded  2\n")
	require.Equal(t, []string{"gpumux", "gpumux.gpu", "gpumux.gpu.watch"}, s.queues("v7"))
}

// New code of a task comes with a new version of the deployment. A map stays with the
// version that it began with, and with its code; the next one has the new code. The
// chunks of a map inside a workflow, which has no version, go to the new one.
func TestDeployment_NewCodeOfATask(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	gate := filepath.Join(t.TempDir(), "gate")
	serve := func(value, build string) (code string) {
		at := newShell(t)
		at.write("edited.py", editedPy+fmt.Sprintf(`
def gated(x):
    while x >= 5 and not os.path.exists(%q): time.sleep(0.01)
    return near.value
`, gate))
		near(t, at.dir, value)
		at.write("worker.yaml", fmt.Sprintf("temporal: {address: %q, namespace: %q, deployment: gpus, build: %s}\nstore: %q\n"+
			"pools: [{name: cpu, devices: cpu, slots: 6}]\ntasks: {\"*\": {python_dir: .}}\n", devservertest.Run(t).Address(), s.namespace, build, s.store))
		worker := at.begin("worker", "-f", "worker.yaml")
		rig.Wait(t, func() bool {
			return strings.Contains(worker.stderr.String(), "no new map comes to this version before it is current: temporal worker deployment set-current-version "+
				"--deployment-name gpus --build-id "+build)
		}, time.Minute, 20*time.Millisecond)
		s.current(build)
		return launch.Code{Dir: at.dir, Target: "edited.py:gated"}.Edition()
	}
	first := serve("first", "v1")
	service(t, s.client, map[string]any{"mapped": mapped})
	in := gpumux.MapInput{Task: "edited:gated", Range: &gpumux.Range{End: 60}, Ladder: []string{"cpu"}, Chunk: 1, Window: 3, Output: "o.jsonl"}
	child := s.start(in)
	inline, err := s.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "inline", TaskQueue: "service"}, mapped,
		gpumux.MapInput{Task: "edited:gated", Edition: gpumux.AnyEdition, Ladder: []string{"cpu"}, Chunk: 1, Window: 3})
	require.NoError(t, err)
	for _, run := range []client.WorkflowRun{child, inline} {
		require.Eventually(t, func() bool { return s.attempts(run) > 0 }, time.Minute, 20*time.Millisecond)
	}
	second := serve("another", "v2")

	f, watch, builds := &fleet.Fleet{Client: s.client, Namespace: s.namespace}, contract.WatchQueue(names.PoolQueue("cpu")), map[string]string{}
	require.Eventually(t, func() bool {
		queue, err := s.client.DescribeTaskQueue(t.Context(), watch, enums.TASK_QUEUE_TYPE_ACTIVITY)
		for _, poller := range queue.GetPollers() {
			builds[poller.GetDeploymentOptions().GetBuildId()] = poller.GetIdentity()
		}
		return err == nil && len(builds) == 2
	}, time.Minute, 100*time.Millisecond)
	require.False(t, f.OthersHave(t.Context(), watch, builds["v2"], in.Task, first), "its workers get no work of this version")
	require.False(t, f.OthersHave(t.Context(), watch, builds["v1"], in.Task, second))

	require.NoError(t, os.WriteFile(gate, nil, 0o644))
	var sum gpumux.Summary
	require.NoError(t, child.Get(t.Context(), &sum))
	require.Equal(t, map[string]int{"first": 60}, counted(t, s.results(sum)))
	var counts map[string]int
	require.NoError(t, inline.Get(t.Context(), &counts))
	require.Len(t, counts, 2)
	in.Output = "p.jsonl"
	require.NoError(t, s.start(in).Get(t.Context(), &sum))
	require.Equal(t, map[string]int{"another": 60}, counted(t, s.results(sum)))
}

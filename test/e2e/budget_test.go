package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers/config"
	"github.com/gpumux/gpumux/workflows"
)

const heavyPy = `
def size(text): return len(text)
def loud(x):
    print(("%08d" % x) * 2500)
    return x
def wordy(x): raise ValueError("%d: " % x + "wordy " * 17000)
`

// heavy is what a service asks for at once: so many maps, each over so many texts.
type heavy struct {
	Maps, Items, Bytes int
	In                 gpumux.MapInput
	// Children says that the maps are workflows of their own.
	Children bool
}

// weighs returns how many of the texts have the right length. An error of a map is its
// own to handle: clean-up code runs.
func weighs(ctx workflow.Context, h heavy) (right int, err error) {
	text := strings.Repeat("x", h.Bytes)
	texts := make([]string, h.Items)
	for i := range texts {
		texts[i] = text
	}
	if h.Children {
		return weighsInChildren(ctx, h, texts)
	}
	var running []workflows.Running[int]
	for range h.Maps {
		running = append(running, workflows.MapAsync[string, int](ctx, h.In, texts))
	}
	for _, each := range running {
		mapped, failed := each.Get(ctx)
		if failed != nil {
			err = failed
		}
		for _, r := range mapped.Results {
			if r.Value == h.Bytes {
				right++
			}
		}
	}
	return right, err
}

func weighsInChildren(ctx workflow.Context, h heavy, texts []string) (right int, err error) {
	for _, text := range texts {
		h.In.Items = append(h.In.Items, []byte(`"`+text+`"`))
	}
	var running []workflows.Future[gpumux.Summary]
	for range h.Maps {
		running = append(running, workflows.MapSourceAsync(ctx, h.In))
	}
	for _, each := range running {
		summary, err := each.Get(ctx)
		if err != nil {
			return right, err
		}
		right += int(summary.Succeeded)
	}
	return right, nil
}

func heavySite(t *testing.T) *site {
	s := newSite(t)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "heavy.py"), []byte(heavyPy), 0o644))
	tasks := map[string]config.Task{}
	for _, f := range []string{"size", "loud", "wordy"} {
		tasks[f] = config.Task{Python: "heavy.py:" + f}
	}
	s.serve(onCPU(cpuPool{Pool: "cpu", Slots: 2, Tasks: tasks, Dir: s.dir, Store: s.store}))
	service(t, s.client, map[string]any{"weighs": weighs, "hears": hears})
	return s
}

// hears maps over numbers with a task that says much, and returns what it got of it.
func hears(ctx workflow.Context, task string, items int) (heard []workflows.Result[int], err error) {
	numbers := make([]int, items)
	for i := range numbers {
		numbers[i] = i
	}
	mapped, err := workflows.Map[int, int](ctx, gpumux.MapInput{Task: task, Ladder: []string{"cpu"}}, numbers)
	if err != nil {
		return nil, err
	}
	for i, r := range mapped.Results {
		if i%(items/4) == 0 {
			heard = append(heard, r)
		}
	}
	return heard, nil
}

// The server ends a workflow that asks for more than it takes, and none of its code runs
// then. What a service's maps hold of its workflow waits in place of that.
func TestBudget_MapsOfAWorkflow(t *testing.T) {
	t.Parallel()
	s := heavySite(t)
	for name, h := range map[string]heavy{
		"two maps of large texts": {Maps: 2, Items: 3, Bytes: 800_000},
		"children with items":     {Maps: 12, Items: 5, Bytes: 100_000, Children: true},
	} {
		t.Run(name, func(t *testing.T) {
			run := s.weigh(t, name, h)
			var right int
			require.NoError(t, run.Get(t.Context(), &right))
			require.Equal(t, h.Maps*h.Items, right)
		})
	}
	// What cannot fit is refused before anything ran, by an error that the caller handles.
	for says, h := range map[string]heavy{
		"with these items it has 51.5MiB": {Maps: 1, Items: 60, Bytes: 900_000},
		"9000 items in chunks of 1":       {Maps: 1, Items: 9_000, Bytes: 1, In: gpumux.MapInput{Chunk: 1}},
	} {
		t.Run(says, func(t *testing.T) {
			run := s.weigh(t, says, h)
			fault := workflows.FaultOf(run.Get(t.Context(), nil))
			require.NotNil(t, fault)
			require.Equal(t, gpumux.FaultBadInput, fault.Kind)
			require.Contains(t, fault.Message, says)
			require.Contains(t, fault.Hint, "MapSource")
			desc, err := s.client.DescribeWorkflowExecution(t.Context(), says, run.GetRunID())
			require.NoError(t, err)
			require.Less(t, desc.GetWorkflowExecutionInfo().GetHistoryLength(), int64(10), "nothing ran")
		})
	}
	for task, items := range map[string]int{"loud": 300, "wordy": 60} {
		t.Run(task, func(t *testing.T) { s.excerpts(t, task, items) })
	}
}

// weigh starts a workflow with what is heavy.
func (s *site) weigh(t *testing.T, id string, h heavy) client.WorkflowRun {
	t.Helper()
	h.In.Task, h.In.Ladder = "size", []string{"cpu"}
	run, err := s.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: "service"}, "weighs", h)
	require.NoError(t, err)
	return run
}

// What items print and why they failed is an excerpt in a caller's history.
func (s *site) excerpts(t *testing.T, task string, items int) {
	run, err := s.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: task, TaskQueue: "service"}, "hears", task, items)
	require.NoError(t, err)
	var heard []workflows.Result[int]
	require.NoError(t, run.Get(t.Context(), &heard))
	for _, r := range heard {
		excerpt, has := r.Printed, fmt.Sprintf("%08d", r.Index)
		if task == "wordy" {
			excerpt, has = r.Fault.Traceback, "wordy"
		}
		require.Contains(t, excerpt, has)
		require.Regexp(t, `^\[the last 1000 of \d{5,} bytes\]`, excerpt)
		require.Less(t, len(excerpt), 3_000)
	}
	desc, err := s.client.DescribeWorkflowExecution(t.Context(), task, run.GetRunID())
	require.NoError(t, err)
	require.Less(t, desc.GetWorkflowExecutionInfo().GetHistorySizeBytes(), int64(4<<20))
}

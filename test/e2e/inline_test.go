package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/workflows"
)

// A worker is killed in the middle of a chunk of a map in a workflow: the chunk runs
// again on another one, and each item has one result.
func TestInline_AKilledWorkerOfAMapInAWorkflow(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	first, c := h.worker(), h.client()
	const n = 300
	items := make([]int, n)
	for i := range items {
		items[i] = i
	}
	service(t, c, map[string]any{"steps": func(ctx workflow.Context) (values []int, err error) {
		mapped, err := workflows.Map[int, int](ctx, gpumux.MapInput{Task: "step", Ladder: []string{"cpu"}, Chunk: n / 2}, items)
		for _, r := range mapped.Results {
			values = append(values, r.Value)
		}
		return values, err
	}})
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: "service"}, "steps")
	require.NoError(t, err)

	rig.Wait(t, func() bool { count, _ := h.ran(); return len(count) > 20 }, time.Minute, 5*time.Millisecond)
	require.NoError(t, first.Process.Kill())
	require.Equal(t, -1, first.code())
	second := h.worker()
	var values []int
	require.NoError(t, run.Get(t.Context(), &values))
	require.Equal(t, items, values)
	count, _ := h.ran()
	require.Len(t, count, n)
	for item, times := range count {
		require.LessOrEqual(t, times, 2, "item %s", item)
	}
	stop(t, second)
}

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/workflows"
)

// A worker is killed in the middle of a chunk of a map in a workflow: the next attempt
// runs nothing again that was kept. When the server has the results, nothing is kept.
func TestKept_AKilledWorkerOfAMapInAWorkflow(t *testing.T) {
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

	kept := func() map[string]bool {
		paths, err := filepath.Glob(h.path("store/maps/unreported/*"))
		require.NoError(t, err)
		items := map[string]bool{}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if os.IsNotExist(err) {
				continue
			}
			require.NoError(t, err)
			var results []gpumux.Result
			require.NoError(t, json.Unmarshal(text, &results), "%s", path)
			for _, r := range results {
				items[strconv.FormatInt(r.Index, 10)] = true
			}
		}
		return items
	}
	// Two chunks of three seconds, which keep results after a quarter of a second and after
	// two more.
	rig.Wait(t, func() bool { return len(kept()) > 150 }, time.Minute, 5*time.Millisecond)
	require.NoError(t, first.Process.Kill())
	require.Equal(t, -1, first.code())
	before := kept()
	second := h.worker()
	var values []int
	require.NoError(t, run.Get(t.Context(), &values))
	require.Equal(t, items, values)
	count, _ := h.ran()
	require.Len(t, count, n)
	again := 0
	for item, times := range count {
		require.LessOrEqual(t, times, 2, "item %s", item)
		require.True(t, times == 1 || !before[item], "item %s was kept and ran again", item)
		again += times - 1
	}
	t.Logf("%d of %d results were kept when the worker was killed; %d items ran again", len(before), n, again)
	rig.Wait(t, func() bool { return len(kept()) == 0 }, time.Minute, 10*time.Millisecond, "nothing stays in the store")
	stop(t, second)
}

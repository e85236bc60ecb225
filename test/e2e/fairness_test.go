package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
)

// What a map runs in slots has the map's fairness key; the one with which somebody
// started the workflow stays.
func TestFairness_OfWhatTakesSlots(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 2)
	for id, given := range map[string]temporal.Priority{
		"small": {}, strings.Repeat("long", 40): {}, "of a team": {FairnessKey: "team", FairnessWeight: 2},
	} {
		in := gpumux.MapInput{Task: "double", Range: &gpumux.Range{End: 20}, Ladder: []string{"cpu"}, Output: "out/" + id[:5] + ".jsonl"}
		run, err := s.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: gpumux.Queue, Priority: given}, gpumux.MapWorkflow, in)
		require.NoError(t, err)
		require.NoError(t, run.Get(t.Context(), nil))
		keys := map[string]bool{}
		for all := s.client.GetWorkflowHistory(t.Context(), id, run.GetRunID(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); all.HasNext(); {
			event, err := all.Next()
			require.NoError(t, err)
			if a := event.GetActivityTaskScheduledEventAttributes(); a != nil && a.GetTaskQueue().GetName() != gpumux.Queue {
				keys[a.GetPriority().GetFairnessKey()] = true
			}
		}
		require.Len(t, keys, 1)
		for key := range keys {
			switch {
			case given.FairnessKey != "":
				require.Equal(t, "team", key)
			case len(id) <= 64:
				require.Equal(t, id, key)
			default:
				require.Len(t, key, 64)
			}
		}
	}
}

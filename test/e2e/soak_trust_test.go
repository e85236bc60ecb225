package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/names"
)

// TestSoak_OneOutputThroughHarm runs one map again and again over what is left of its
// results: parts damaged, cut off and deleted, any pattern of results taken away, runs
// reset while they work, and absurd requests all along. Each round ends with every result
// right.
func TestSoak_OneOutputThroughHarm(t *testing.T) {
	chance := soaking(t)
	s := newSite(t)
	s.worker("cpu", 2)
	s.worker("cpu", 2)
	const n, rounds = 20_000, 25
	in := gpumux.MapInput{Task: "double", Range: &gpumux.Range{End: n}, Ladder: []string{"cpu"}, Output: "d/double.jsonl"}
	for round := range rounds {
		if round > 0 {
			s.harm(chance, in.Output)
		}
		s.absurd(round)
		run := s.start(in)
		if chance.IntN(3) == 0 {
			s.reset(run)
		}
		var sum gpumux.Summary
		require.NoError(t, s.client.GetWorkflow(t.Context(), run.GetID(), "").Get(t.Context(), &sum), "round %d", round)
		require.EqualValues(t, n, sum.Succeeded)
		for i, r := range s.results(sum) {
			require.Equal(t, fmt.Sprint(2*i), string(r.Value))
		}
		t.Logf("round %d: %d chunks", round, sum.Chunks)
	}
}

// harm does something to the results that an output has.
func (s *site) harm(chance *rand.Rand, output string) {
	s.t.Helper()
	parts := s.partFilesOf("d")
	for _, path := range parts {
		text, err := os.ReadFile(path)
		require.NoError(s.t, err)
		switch chance.IntN(5) {
		case 0:
			text[chance.IntN(len(text))] ^= byte(1 + chance.IntN(255))
			err = os.WriteFile(path, text, 0o600)
		case 1:
			err = os.WriteFile(path, text[:chance.IntN(len(text))], 0o600)
		case 2:
			err = os.Remove(path)
		}
		require.NoError(s.t, err)
	}
	if chance.IntN(2) == 0 {
		for _, path := range parts {
			if err := os.Remove(path); err != nil {
				require.ErrorIs(s.t, err, os.ErrNotExist)
			}
		}
		every := 1 + chance.Int64N(5)
		s.keepResults(output, func(i int64) bool { return i%every == 0 || chance.IntN(10) == 0 })
	}
}

// absurd sends what no map would.
func (s *site) absurd(round int) {
	s.t.Helper()
	for name, input := range map[string]any{
		contract.RunChunk:   map[string]any{"task": "double", "runs": []int64{0, 1 << 40}, "range": map[string]any{"start": 0, "end": 1 << 40}},
		contract.MergeParts: map[string]any{"parts": "../..", "output": "d", "items": -1},
	} {
		queue := gpumux.Queue
		if name == contract.RunChunk {
			queue = names.PoolQueue("cpu")
		}
		handle, err := s.client.ExecuteActivity(s.t.Context(), client.StartActivityOptions{
			ID: fmt.Sprintf("%s-%d", name, round), TaskQueue: queue, StartToCloseTimeout: time.Minute,
		}, name, input)
		require.NoError(s.t, err)
		require.Error(s.t, handle.Get(s.t.Context(), nil))
	}
}

// reset resets a run to its first step, wherever it is.
func (s *site) reset(run client.WorkflowRun) {
	s.t.Helper()
	first := int64(0)
	events := s.client.GetWorkflowHistory(s.t.Context(), run.GetID(), run.GetRunID(), true, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for first == 0 && events.HasNext() {
		event, err := events.Next()
		require.NoError(s.t, err)
		if event.GetEventType() == enums.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			first = event.GetEventId()
		}
	}
	_, err := s.client.ResetWorkflowExecution(s.t.Context(), &workflowservice.ResetWorkflowExecutionRequest{
		Namespace: s.namespace, Reason: "soak", WorkflowTaskFinishEventId: first, RequestId: run.GetRunID(),
		WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: run.GetID(), RunId: run.GetRunID()},
	})
	require.NoError(s.t, err)
}

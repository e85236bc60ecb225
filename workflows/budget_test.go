package workflows_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/workflows"
)

// The longer the history, the larger the chunks, so that all items have room in it.
func TestBudget_ChunksGrowWithTheHistory(t *testing.T) {
	for length, largest := range map[int]int64{0: 2, 32_000: 10, 39_200: 100} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			w := &worker{perItem: 2 * time.Second}
			env := environment(time.Minute)
			env.SetCurrentHistoryLength(length)
			w.register(env)
			env.ExecuteWorkflow(square, 10_000, gpumux.MapInput{})
			var results []workflows.Result[int]
			require.NoError(t, env.GetWorkflowResult(&results))
			require.Len(t, results, 10_000)
			for i, r := range results {
				require.Equal(t, i*i, r.Value)
			}
			require.GreaterOrEqual(t, w.chunks[0].Len(), largest)
		})
	}
}

// Results that fill the history end the map by an error, while there is room for what the
// workflow does then.
func TestBudget_ResultsFillTheHistory(t *testing.T) {
	env := environment(time.Minute)
	w := &worker{odd: func(c contract.Chunk, _ string) (*contract.ChunkResult, error) {
		env.SetCurrentHistorySize(20 << 20 * int(start(c)))
		return &contract.ChunkResult{Covered: 1, Ran: 1, Counts: contract.Counts{Succeeded: 1}, Worker: "w", Slots: 2, Results: []gpumux.Result{{Index: start(c), Value: []byte(`1`)}}}, nil
	}}
	w.register(env)
	env.ExecuteWorkflow(square, 10, gpumux.MapInput{Chunk: 1, Window: 1})
	fault := workflows.FaultOf(env.GetWorkflowError())
	require.NotNil(t, fault)
	require.Equal(t, gpumux.FaultBadInput, fault.Kind)
	require.Contains(t, fault.Hint, "in a child workflow of its own")
	require.Contains(t, fault.Message, "of 10 items are done")
}

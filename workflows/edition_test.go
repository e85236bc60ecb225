package workflows_test

import (
	"cmp"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/workflows"
)

// A map has one edition of its task's code, also when it runs in several workflows.
func TestEdition_IsFixedOnceAndKnownToEveryChunk(t *testing.T) {
	w := &worker{edition: "abc123"}
	env := run(t, w, gpumux.MapWorkflow, gpumux.MapInput{Task: "square", Range: &gpumux.Range{End: 1200}, Chunk: 1, Output: "o/r.jsonl"})
	require.NoError(t, env.GetWorkflowError())
	require.Equal(t, 1, w.asked)
	require.Len(t, w.chunks, 1200)
	for _, c := range w.chunks {
		require.Equal(t, "abc123", c.Edition)
	}

	w = &worker{edition: "abc123"}
	env = run(t, w, gpumux.MapWorkflow, gpumux.MapInput{Task: "square", Edition: "fedcba", Range: &gpumux.Range{End: 2}})
	require.NoError(t, env.GetWorkflowError())
	require.Zero(t, w.asked, "the map says which")
	require.Equal(t, "fedcba", w.chunks[0].Edition)
}

// A map inside a workflow takes the edition of its first chunk. Chunks that ran with
// another edition run again.
func TestEdition_OfAMapInAWorkflowIsThatOfItsFirstChunk(t *testing.T) {
	w := &worker{}
	first, odd := "", 0
	w.odd = func(c contract.Chunk, _ string) (*contract.ChunkResult, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		n := c.Len()
		result := &contract.ChunkResult{Covered: n, Ran: n, Counts: contract.Counts{Succeeded: n}, Worker: "w", Slots: 2, Edition: cmp.Or(c.Edition, "aaaaaa")}
		if first == "" {
			first = c.Edition + "."
		} else if c.Edition == "" { // it began before one came back
			odd++
			result.Edition = "bbbbbb"
		}
		value := []byte("1")
		if result.Edition == "bbbbbb" {
			value = []byte("2")
		}
		for _, i := range w.among(c.Work) {
			result.Results = append(result.Results, gpumux.Result{Index: i, Value: value})
		}
		return result, nil
	}
	env := run(t, w, square, 40, gpumux.MapInput{Chunk: 2, Window: 4})
	var results []workflows.Result[int]
	require.NoError(t, env.GetWorkflowResult(&results))
	require.Equal(t, ".", first)
	editions := map[int]bool{}
	for _, r := range results {
		editions[r.Value] = true
	}
	require.Len(t, editions, 1, "values of one edition")
	known := 0
	for _, c := range w.chunks {
		if c.Edition != "" {
			known++
		}
	}
	require.GreaterOrEqual(t, known, 16, "all but those that were under way")
}

// When the edition of a chunk is gone, the map ends with a fault that says what to do. No
// further chunk is handed out.
func TestEdition_GoneEndsTheMap(t *testing.T) {
	w := &worker{edition: "abc123"}
	gone := gpumux.Fault{Kind: gpumux.FaultBadInput, Op: "start", Edition: "fedcba", Message: "the code is another"}
	w.odd = func(c contract.Chunk, _ string) (*contract.ChunkResult, error) {
		if w.indices(c.Work)[0] >= 10 {
			return nil, temporal.NewApplicationErrorWithOptions(gone.Error(), string(gone.Kind),
				temporal.ApplicationErrorOptions{NonRetryable: true, Details: []any{gone}})
		}
		return nil, nil
	}
	env := run(t, w, gpumux.MapWorkflow, gpumux.MapInput{Task: "square", Range: &gpumux.Range{End: 1000}, Chunk: 5, Window: 1, Output: "o/r.jsonl"})
	require.Equal(t, gone.Edition, workflows.FaultOf(env.GetWorkflowError()).Edition)
	require.Len(t, w.chunks, 3)
	require.Len(t, w.stored, 10, "what has finished is kept")
}

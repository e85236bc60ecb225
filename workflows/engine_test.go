package workflows_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/workflows"
)

func TestMap_ResultsAreInOrderWhateverTheChunks(t *testing.T) {
	for _, o := range []gpumux.MapInput{{}, {Chunk: 7}, {Window: 1}, {Chunk: 1000}} {
		w := &worker{perItem: time.Millisecond}
		env := run(t, w, square, 500, o)
		var results []workflows.Result[int]
		require.NoError(t, env.GetWorkflowResult(&results))
		require.Len(t, results, 500)
		for i, r := range results {
			require.Nil(t, r.Fault)
			require.Equal(t, i*i, r.Value)
		}
		seen := make([]int, 500)
		for _, c := range w.chunks {
			for _, i := range w.indices(c.Work) {
				seen[i]++
			}
		}
		require.Equal(t, slices.Repeat([]int{1}, 500), seen, "each item is handed out once")
	}
}

func TestMap_OneItemIsOneActivity(t *testing.T) {
	w := &worker{}
	env := run(t, w, square, 1, gpumux.MapInput{})
	require.NoError(t, env.GetWorkflowError())
	require.Len(t, w.chunks, 1)
}

func TestMap_AChunkThatStopsEarlyIsContinued(t *testing.T) {
	first := true
	w := &worker{}
	w.odd = func(c contract.Chunk, _ string) (*contract.ChunkResult, error) {
		if !first {
			return nil, nil
		}
		first = false
		return &contract.ChunkResult{Covered: 1, Ran: 1, Counts: contract.Counts{Succeeded: 1}, Results: []gpumux.Result{{Index: start(c), Value: json.RawMessage("0")}}}, nil
	}
	env := run(t, w, square, 10, gpumux.MapInput{Chunk: 10})
	var results []workflows.Result[int]
	require.NoError(t, env.GetWorkflowResult(&results))
	require.Equal(t, 81, results[9].Value)
	require.Equal(t, []contract.Runs{{{Start: 0, End: 10}}, {{Start: 1, End: 10}}}, []contract.Runs{w.chunks[0].Runs, w.chunks[1].Runs})
}

func TestMap_InvalidOptionsNameTheField(t *testing.T) {
	env := run(t, &worker{}, square, 1, gpumux.MapInput{Ladder: []string{"No Such"}, Attempts: -1})
	require.ErrorContains(t, env.GetWorkflowError(), "ladder[0]")
	require.ErrorContains(t, env.GetWorkflowError(), "attempts")
	require.Equal(t, gpumux.FaultBadInput, workflows.FaultOf(env.GetWorkflowError()).Kind)
}

// The first chunks are guesses. A worker whose process takes several items at a time
// hands them back, and what is cut then fills the slots.
func TestMap_AGuessedChunkComesBack(t *testing.T) {
	w := &worker{likely: 1, slots: 1, odd: func(c contract.Chunk, _ string) (*contract.ChunkResult, error) {
		if c.Guessed {
			return &contract.ChunkResult{Concurrent: 32, Worker: "w1", Slots: 1}, nil
		}
		return nil, nil
	}}
	env := run(t, w, square, 100, gpumux.MapInput{})
	var results []workflows.Result[int]
	require.NoError(t, env.GetWorkflowResult(&results))
	for i, r := range results {
		require.Equal(t, i*i, r.Value)
	}
	guesses, items := 0, int64(0)
	for _, c := range w.chunks {
		if c.Guessed {
			guesses++
			continue
		}
		require.EqualValues(t, 32, c.Together)
		items = max(items, c.Len())
	}
	require.EqualValues(t, 32, items)
	require.LessOrEqual(t, guesses, 8, "two for each slot that there may be, before the first came back")
}

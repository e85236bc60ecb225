package workflows_test

import (
	"encoding/json"
	"fmt"
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

func TestMap_NoItems(t *testing.T) {
	w := &worker{}
	env := run(t, w, square, 0, gpumux.MapInput{})
	var results []workflows.Result[int]
	require.NoError(t, env.GetWorkflowResult(&results))
	require.Empty(t, results)
	require.Empty(t, w.chunks)
}

func TestMap_ChunksAreAShareOfWhatIsLeft(t *testing.T) {
	w := &worker{perItem: 10 * time.Millisecond}
	env := run(t, w, square, 3000, gpumux.MapInput{})
	require.NoError(t, env.GetWorkflowError())
	// Activities run side by side, so chunks arrive in another order than they were cut in.
	slices.SortFunc(w.chunks, func(a, b contract.Chunk) int { return int(start(a) - start(b)) })
	sizes := make([]int64, len(w.chunks))
	for i, c := range w.chunks {
		sizes[i] = c.Len()
	}
	require.EqualValues(t, 187, sizes[0], "a quarter of a share, while nobody knows how many slots there are")
	require.EqualValues(t, 200*time.Millisecond, w.chunks[0].Limit, "which hands back what takes too long")
	require.Less(t, slices.Max(sizes), int64(750), "half of a slot's share")
	require.Less(t, sizes[len(sizes)-1], int64(10), "the last chunk is small")
}

// The engine does not know the number of slots while the first items all run long.
func TestMap_LongItemsReachAllSlots(t *testing.T) {
	env := environment(time.Minute)
	const slots = 64
	gate := make(chan struct{})
	began := 0
	w := &worker{slots: slots}
	w.odd = func(contract.Chunk, string) (*contract.ChunkResult, error) {
		w.mu.Lock()
		if began++; began == slots {
			close(gate)
		}
		w.mu.Unlock()
		<-gate
		return nil, nil
	}
	w.register(env)
	env.ExecuteWorkflow(square, 1000, gpumux.MapInput{})
	require.NoError(t, env.GetWorkflowError())
}

func TestMap_ItemsThatNeedMoreMemoryGoUpTheLadder(t *testing.T) {
	w := &worker{odd: func(c contract.Chunk, queue string) (*contract.ChunkResult, error) {
		if queue != "gpumux.small" || start(c) > 3 || end(c) < 3 {
			return nil, nil
		}
		r := contract.ChunkResult{Covered: c.Len(), Ran: c.Len(), Escalate: contract.Runs{{Start: 3, End: 4}}}
		for i := start(c); i <= end(c); i++ {
			if i != 3 {
				r.Results = append(r.Results, gpumux.Result{Index: i, Value: json.RawMessage(fmt.Sprint(i * i))})
			}
		}
		return &r, nil
	}}
	env := run(t, w, square, 10, gpumux.MapInput{Ladder: []string{"small", "large"}, Chunk: 5})
	var results []workflows.Result[int]
	require.NoError(t, env.GetWorkflowResult(&results))
	for i, r := range results {
		require.Equal(t, i*i, r.Value)
	}
	at := slices.Index(w.queues, "gpumux.large")
	require.GreaterOrEqual(t, at, 0)
	require.Equal(t, contract.Runs{{Start: 3, End: 4}}, w.chunks[at].Runs)
	require.False(t, w.chunks[at].Larger, "the last rung has none above it")
	require.True(t, w.chunks[0].Larger)
}

func TestMap_AFaultIsAResult(t *testing.T) {
	fault := &gpumux.Fault{Kind: gpumux.FaultTaskError, Message: "boom"}
	w := &worker{odd: func(c contract.Chunk, _ string) (*contract.ChunkResult, error) {
		if start(c) != 2 {
			return nil, nil
		}
		failed := gpumux.Result{Index: 2, Fault: fault}
		return &contract.ChunkResult{Covered: c.Len(), Ran: 1, Failed: 1, Results: []gpumux.Result{failed}, Recent: []gpumux.Result{failed}}, nil
	}}
	env := run(t, w, square, 4, gpumux.MapInput{Chunk: 1})
	var results []workflows.Result[int]
	require.NoError(t, env.GetWorkflowResult(&results))
	require.Equal(t, fault, results[2].Fault)
	require.Nil(t, results[3].Fault)
	_, err := workflows.Mapped[int]{Results: results}.Values()
	require.ErrorContains(t, err, "item 2: boom (type: task_error, retryable: false)")
	require.Equal(t, fault, workflows.FaultOf(err))

	env = run(t, w, square, 4, gpumux.MapInput{Chunk: 1, MaxFailures: "0"})
	require.ErrorContains(t, env.GetWorkflowError(), "item 2 failed, and none may: boom")
	require.Equal(t, "boom", workflows.FaultOf(env.GetWorkflowError()).Message)
}

func TestMap_AChunkThatStopsEarlyIsContinued(t *testing.T) {
	first := true
	w := &worker{}
	w.odd = func(c contract.Chunk, _ string) (*contract.ChunkResult, error) {
		if !first {
			return nil, nil
		}
		first = false
		return &contract.ChunkResult{Covered: 1, Ran: 1, Succeeded: 1, Results: []gpumux.Result{{Index: start(c), Value: json.RawMessage("0")}}}, nil
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

package workflows_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/workflows"
)

// failing answers a chunk in which all items fail.
func failing(c contract.Chunk) *contract.ChunkResult {
	n := c.Len()
	r := &contract.ChunkResult{Covered: n, Ran: n, Counts: contract.Counts{Failed: n, Faults: map[gpumux.FaultKind]int64{gpumux.FaultCrash: n}}, Worker: "w1", Slots: 2}
	for i := start(c); i <= end(c); i++ {
		failed := gpumux.Result{Index: i, Fault: &gpumux.Fault{Kind: gpumux.FaultCrash, Message: "boom"}}
		if r.Recent = append(r.Recent, failed); c.Parts == "" {
			r.Results = append(r.Results, failed)
		}
	}
	return r
}

func TestMap_MoreFailuresThanMayEndTheMap(t *testing.T) {
	w := &worker{odd: func(c contract.Chunk, _ string) (*contract.ChunkResult, error) { return failing(c), nil }}
	env := run(t, w, square, 10, gpumux.MapInput{Chunk: 1, Window: 1, MaxFailures: "25%"})
	require.ErrorContains(t, env.GetWorkflowError(), "3 of 10 items failed, more than the 2 that may (25%), mostly crash; such as item 2: crash: boom")
	fault := workflows.FaultOf(env.GetWorkflowError())
	require.Equal(t, gpumux.FaultCrash, fault.Kind)
	require.Len(t, w.chunks, 3)
	for i, c := range w.chunks {
		require.EqualValues(t, 2-i, *c.MayFail, "a chunk knows how many may still fail")
	}
	env = run(t, w, square, 10, gpumux.MapInput{Chunk: 1, MaxFailures: "100%"})
	require.NoError(t, env.GetWorkflowError())
}

func TestRegistered_FailuresCountOverSegments(t *testing.T) {
	w := &worker{items: 3000, odd: func(c contract.Chunk, _ string) (*contract.ChunkResult, error) {
		if start(c)%10 != 0 {
			return nil, nil
		}
		return failing(c), nil
	}}
	in := gpumux.MapInput{Task: "square", Source: "sources/x.jsonl", Output: "maps/x/1/results.jsonl", Chunk: 1, Window: 4, MaxFailures: "4%"}
	env := run(t, w, gpumux.MapWorkflow, in)
	require.ErrorContains(t, env.GetWorkflowError(), "of 3000 items failed, more than the 120 that may (4%)")
	require.Greater(t, len(w.chunks), 1200)
	require.Less(t, len(w.chunks), 2000, "each of two segments knows what failed before it")
}

// Where none may fail, the first failure of a segment is the map's own fault.
func TestRegistered_TheFirstFailureInASegment(t *testing.T) {
	w := &worker{items: 3000, odd: func(c contract.Chunk, _ string) (*contract.ChunkResult, error) {
		if start(c) != 1200 {
			return nil, nil
		}
		return failing(c), nil
	}}
	in := gpumux.MapInput{Task: "square", Source: "sources/x.jsonl", Output: "maps/x/1/results.jsonl", Chunk: 1, Window: 4, MaxFailures: "0"}
	env := run(t, w, gpumux.MapWorkflow, in)
	require.ErrorContains(t, env.GetWorkflowError(), "item 1200 failed, and none may: boom")
	require.Equal(t, "boom", workflows.FaultOf(env.GetWorkflowError()).Message)
}

// What the next run of a map may still do is in its state.
func TestRegistered_TheNextRunKnowsHowManyMayFail(t *testing.T) {
	env := environment(20 * time.Second)
	w := &worker{items: 3000, odd: func(c contract.Chunk, _ string) (*contract.ChunkResult, error) {
		if start(c) >= 2 {
			return nil, nil
		}
		return failing(c), nil
	}}
	w.register(env)
	env.SetContinueAsNewSuggested(true)
	env.ExecuteWorkflow(gpumux.MapWorkflow, gpumux.MapInput{Task: "square", Source: "sources/x.jsonl", Output: "maps/x/1/results.jsonl", Chunk: 1,
		MaxFailures: "5"})
	var again *workflow.ContinueAsNewError
	require.ErrorAs(t, env.GetWorkflowError(), &again)
	var in handoff
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(again.Input, &in))
	require.EqualValues(t, 3, *in.Carry.MayFail)
}

// An item that raised waits without a chunk. The others go on, and nothing is counted
// before its last try.
func TestMap_ItemsThatRaiseAreTriedAgainAfterPauses(t *testing.T) {
	env := environment(20 * time.Second)
	tries := map[int][]time.Time{}
	w := &worker{}
	w.odd = func(c contract.Chunk, _ string) (*contract.ChunkResult, error) {
		w.mu.Lock()
		tries[c.Tries] = append(tries[c.Tries], env.Now())
		w.mu.Unlock()
		if c.Tries == 2 {
			return nil, nil
		}
		r := &contract.ChunkResult{Covered: c.Len(), Ran: c.Len(), Worker: "w1", Slots: 2}
		for _, i := range w.indices(c.Work) {
			if i%10 == 3 {
				r.Retry.Add(i)
			} else {
				r.Succeeded++
				r.Results = append(r.Results, gpumux.Result{Index: i, Value: []byte("1")})
			}
		}
		return r, nil
	}
	w.register(env)
	env.ExecuteWorkflow(square, 40, gpumux.MapInput{Chunk: 10, Attempts: 3, Backoff: gpumux.Duration(40 * time.Second)})
	var results []workflows.Result[int]
	require.NoError(t, env.GetWorkflowResult(&results))
	require.Equal(t, 13*13, results[13].Value)
	var items int64
	for _, c := range w.chunks {
		require.True(t, c.Backoff)
		if c.Tries > 0 {
			items += c.Len()
		}
	}
	require.EqualValues(t, 8, items, "two more tries of four items")
	first, second := slices.MaxFunc(tries[0], time.Time.Compare), slices.MinFunc(tries[1], time.Time.Compare)
	third := slices.MinFunc(tries[2], time.Time.Compare)
	require.GreaterOrEqual(t, second.Sub(first), 40*time.Second)
	require.GreaterOrEqual(t, third.Sub(second), time.Minute, "twice as long, at most a minute")
	require.Less(t, third.Sub(second), 70*time.Second)
}

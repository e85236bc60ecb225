package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/workflows"
)

func progressOf(t *testing.T, env *testsuite.TestWorkflowEnvironment) (p gpumux.Progress) {
	t.Helper()
	value, err := env.QueryWorkflow(gpumux.ProgressQuery)
	require.NoError(t, err)
	require.NoError(t, value.Get(&p))
	return p
}

// raises answers every chunk with its last item to be tried again.
func raises(c contract.Chunk, _ string) (*contract.ChunkResult, error) {
	last := c.Runs[len(c.Runs)-1].End
	return &contract.ChunkResult{Covered: c.Len(), Ran: c.Len(), Counts: contract.Counts{Succeeded: c.Len() - 1}, Retry: contract.Runs{{Start: last - 1, End: last}}}, nil
}

// A map ends with its deadline, also while its items wait, and says so.
func TestDeadline_OfAMap(t *testing.T) {
	env := environment(20 * time.Second)
	w := &worker{odd: raises}
	w.register(env)
	began, waits := env.Now(), ""
	env.RegisterDelayedCallback(func() { waits = progressOf(t, env).WaitingFor }, time.Hour)
	env.ExecuteWorkflow(gpumux.MapWorkflow, gpumux.MapInput{
		Task: "square", Source: "sources/x.jsonl", Attempts: 9, Backoff: gpumux.Duration(24 * time.Hour), Chunk: 100,
		MapTimeout: gpumux.Duration(90 * time.Minute),
	})
	fault := workflows.FaultOf(env.GetWorkflowError())
	require.NotNil(t, fault, "%v", env.GetWorkflowError())
	require.Equal(t, gpumux.FaultTimeout, fault.Kind)
	require.Equal(t, "the map took longer than its mapTimeout of 1h30m0s; 99 of 100 items are done", fault.Message)
	require.Equal(t, "another try of items that raised", waits)
	require.Equal(t, 90*time.Minute, env.Now().Sub(began).Round(time.Second))
}

// The deadline is of all runs of a map together.
func TestDeadline_GoesOnInTheNextRun(t *testing.T) {
	for passed, late := range map[time.Duration]bool{time.Hour: false, 4 * time.Hour: true} {
		env := environment(20 * time.Second)
		env.SetContinuedExecutionRunID("the run before")
		w := &worker{stored: map[int64]bool{0: true}}
		w.register(env)
		began := env.Now()
		in := handoff{
			Input: gpumux.MapInput{
				Task: "square", Source: "sources/x.jsonl", Output: "o.jsonl", MapTimeout: gpumux.Duration(3 * time.Hour),
			},
			Carry: contract.Carry{Items: 2, Started: began.Add(-passed), Stages: []contract.StageCarry{{
				Counts: contract.Counts{Succeeded: 1}, Todo: contract.Backlog{{Work: contract.Work{Runs: contract.Runs{{Start: 1, End: 2}}}}}}}},
		}
		env.ExecuteWorkflow(gpumux.MapWorkflow, in)
		fault := workflows.FaultOf(env.GetWorkflowError())
		require.Equal(t, late, fault != nil, "%v", env.GetWorkflowError())
		require.Less(t, env.Now().Sub(began), time.Minute)
	}
}

package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/workflows"
)

// handoff is the input of a segment or of a map's next run.
type handoff struct {
	Input gpumux.MapInput
	Carry contract.Carry
}

func TestRegistered_ManySlotsAreFilledBySeveralSegments(t *testing.T) {
	env := environment(time.Minute)
	// The test environment hangs when more than 1,000 events wait. So fewer activities may
	// be under way.
	w := &worker{items: 2000, slots: 300}
	w.register(env)
	running, highest := 0, 0
	env.SetOnChildWorkflowStartedListener(func(_ *workflow.Info, _ workflow.Context, args converter.EncodedValues) {
		var in handoff
		require.NoError(t, args.Get(&in))
		require.Equal(t, 3, in.Carry.Abreast)
		running++
		highest = max(highest, running)
	})
	env.SetOnChildWorkflowCompletedListener(func(*workflow.Info, converter.EncodedValue, error) { running-- })
	env.ExecuteWorkflow(gpumux.MapWorkflow, gpumux.MapInput{Task: "square", Source: "sources/x.jsonl", Output: "maps/x/1/results.jsonl", Chunk: 1})
	var s gpumux.Summary
	require.NoError(t, env.GetWorkflowResult(&s))
	require.EqualValues(t, 2000, s.Chunks)
	require.Equal(t, 3, highest)
	seen := map[int64]bool{}
	for _, c := range w.chunks {
		require.False(t, seen[start(c)], "item %d", start(c))
		seen[start(c)] = true
	}
	require.Len(t, seen, 2000)
}

func TestRegistered_AFailedSegmentFailsTheMap(t *testing.T) {
	w := &worker{items: 3000, odd: func(c contract.Chunk, _ string) (*contract.ChunkResult, error) {
		if start(c) != 2000 {
			return nil, nil
		}
		f := gpumux.Fault{Kind: gpumux.FaultBadInput, Message: "no such thing"}
		return nil, temporal.NewApplicationErrorWithOptions(f.Error(), string(f.Kind), temporal.ApplicationErrorOptions{NonRetryable: true, Details: []any{f}})
	}}
	env := run(t, w, gpumux.MapWorkflow, gpumux.MapInput{Task: "square", Source: "sources/x.jsonl", Output: "maps/x/1/results.jsonl", Chunk: 1})
	require.Equal(t, "no such thing", workflows.FaultOf(env.GetWorkflowError()).Message)
}

func TestRegistered_AVeryLongMapContinuesAsANewRun(t *testing.T) {
	env := environment(20 * time.Second)
	w := &worker{items: 3000}
	w.register(env)
	env.SetContinueAsNewSuggested(true)
	env.ExecuteWorkflow(gpumux.MapWorkflow, gpumux.MapInput{Task: "square", Source: "sources/x.jsonl", Output: "maps/x/1/results.jsonl", Chunk: 1})
	var again *workflow.ContinueAsNewError
	require.ErrorAs(t, env.GetWorkflowError(), &again)
	var in handoff
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(again.Input, &in))
	require.Equal(t, contract.Backlog{{Work: contract.Work{Runs: contract.Runs{{Start: 500, End: 3000}}}}}, in.Carry.Stages[0].Todo)
	require.EqualValues(t, 500, in.Carry.Stages[0].Succeeded)

	// The next run does the rest.
	env = environment(20 * time.Second)
	env.SetContinuedExecutionRunID("the run before")
	w.register(env)
	env.ExecuteWorkflow(gpumux.MapWorkflow, in)
	var s gpumux.Summary
	require.NoError(t, env.GetWorkflowResult(&s))
	require.EqualValues(t, 3000, s.Items)
}

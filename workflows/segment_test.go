package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/workflows"
)

// given is the input of a segment or of a map's next run.
type given struct {
	Input gpumux.MapInput
	Carry contract.Carry
}

func TestRegistered_ALargeMapRunsInSegments(t *testing.T) {
	w := &worker{items: 3000}
	env := run(t, w, gpumux.MapWorkflow, gpumux.MapInput{Task: "square", Source: "sources/x.jsonl", Output: "maps/x/1/results.jsonl", Chunk: 1})
	var s gpumux.Summary
	require.NoError(t, env.GetWorkflowResult(&s))
	require.EqualValues(t, 3000, s.Items)
	require.EqualValues(t, 3000, s.Chunks)
	seen := map[int64]int{}
	for _, c := range w.chunks {
		seen[start(c)]++
	}
	require.Len(t, seen, 3000)
	for start, times := range seen {
		require.Equal(t, 1, times, "item %d", start)
	}
}

func TestRegistered_ManySlotsAreFilledBySeveralSegments(t *testing.T) {
	env := environment(time.Minute)
	// The test environment hangs when more than 1,000 events wait. So fewer activities may
	// be under way.
	w := &worker{items: 4000, slots: 300}
	w.register(env)
	running, most := 0, 0
	env.SetOnChildWorkflowStartedListener(func(_ *workflow.Info, _ workflow.Context, args converter.EncodedValues) {
		var in given
		require.NoError(t, args.Get(&in))
		require.Equal(t, 3, in.Carry.Abreast)
		running++
		most = max(most, running)
	})
	env.SetOnChildWorkflowCompletedListener(func(*workflow.Info, converter.EncodedValue, error) { running-- })
	env.ExecuteWorkflow(gpumux.MapWorkflow, gpumux.MapInput{Task: "square", Source: "sources/x.jsonl", Output: "maps/x/1/results.jsonl", Chunk: 1})
	var s gpumux.Summary
	require.NoError(t, env.GetWorkflowResult(&s))
	require.EqualValues(t, 4000, s.Chunks)
	require.Equal(t, 3, most)
	seen := map[int64]bool{}
	for _, c := range w.chunks {
		require.False(t, seen[start(c)], "item %d", start(c))
		seen[start(c)] = true
	}
	require.Len(t, seen, 4000)
}

// When the window is widened while segments run, further segments start at once.
func TestRegistered_AWiderWindowTakesMoreSegments(t *testing.T) {
	env := environment(20 * time.Second)
	gate := make(chan struct{})
	w := &worker{items: 2500}
	w.odd = func(c contract.Chunk, _ string) (*contract.ChunkResult, error) {
		if start(c) >= 500 {
			<-gate
		}
		return nil, nil
	}
	w.register(env)
	began := 0
	env.SetOnChildWorkflowStartedListener(func(*workflow.Info, workflow.Context, converter.EncodedValues) {
		if began++; began == 3 {
			close(gate)
		}
	})
	// By now two segments wait for the gate, and nothing else happens.
	env.RegisterDelayedCallback(func() {
		env.UpdateWorkflow(gpumux.WindowUpdate, "", &testsuite.TestUpdateCallback{
			OnReject: func(err error) { t.Error(err) }, OnAccept: func() {}, OnComplete: func(any, error) {},
		}, 750)
	}, 2*time.Second)
	env.ExecuteWorkflow(gpumux.MapWorkflow, gpumux.MapInput{
		Task: "square", Source: "sources/x.jsonl", Output: "maps/x/1/results.jsonl", Chunk: 1, Window: 4,
	})
	require.NoError(t, env.GetWorkflowError())
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
	var in given
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(again.Input, &in))
	require.Equal(t, contract.Backlog{{Work: contract.Work{Runs: contract.Runs{{Start: 500, End: 3000}}}}}, in.Carry.Todo)
	require.EqualValues(t, 500, in.Carry.Succeeded)

	// The next run does the rest.
	env = environment(20 * time.Second)
	env.SetContinuedExecutionRunID("the run before")
	w.register(env)
	env.ExecuteWorkflow(gpumux.MapWorkflow, in)
	var s gpumux.Summary
	require.NoError(t, env.GetWorkflowResult(&s))
	require.EqualValues(t, 3000, s.Items)
}

// counting calls signals for each signal.
type counting struct {
	interceptor.WorkerInterceptorBase
	interceptor.WorkflowInboundInterceptorBase
	signals func()
}

func (c *counting) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &counting{WorkflowInboundInterceptorBase: interceptor.WorkflowInboundInterceptorBase{Next: next}, signals: c.signals}
}

func (c *counting) HandleSignal(ctx workflow.Context, in *interceptor.HandleSignalInput) error {
	c.signals()
	return c.Next.HandleSignal(ctx, in)
}

// A segment tells its map how far it is, the more rarely the older the map: so the
// history of a map that runs for days is not full of it.
func TestSegment_TellsTheMoreRarelyTheOlderTheMap(t *testing.T) {
	told := map[time.Duration]int{}
	for _, age := range []time.Duration{0, 24 * time.Hour} {
		env := environment(30 * time.Second)
		env.SetContinuedExecutionRunID("the run before")
		w := &worker{stored: map[int64]bool{}, odd: func(c contract.Chunk, _ string) (*contract.ChunkResult, error) {
			if c.Tries >= 50 {
				return nil, nil
			}
			return &contract.ChunkResult{Covered: c.Len(), Ran: c.Len(), Retry: c.Runs}, nil
		}}
		w.register(env)
		env.SetWorkerOptions(sdkworker.Options{Interceptors: []interceptor.WorkerInterceptor{&counting{signals: func() { told[age]++ }}}})
		env.ExecuteWorkflow(gpumux.MapWorkflow, given{
			Input: gpumux.MapInput{Task: "square", Source: "sources/x.jsonl", Output: "o.jsonl", Attempts: 100, Backoff: gpumux.Duration(10 * time.Second), Chunk: 1},
			Carry: contract.Carry{Items: 1, Started: env.Now().Add(-age), Todo: contract.Backlog{{Work: contract.Whole(1)}}},
		})
		require.NoError(t, env.GetWorkflowError())
	}
	require.Greater(t, told[0], 30)
	require.Less(t, told[24*time.Hour], 3)
	require.Positive(t, told[24*time.Hour])
}

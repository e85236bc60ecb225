package workflows_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/names"
)

// reducer stands in for the activity Reduce. Its value is the list of stretches that were reduced.
type reducer struct {
	mu     sync.Mutex
	inputs []contract.ReduceInput
	queues []string
	odd    func(contract.ReduceInput, string) error
}

func (r *reducer) run(ctx context.Context, in contract.ReduceInput) (contract.Partial, error) {
	queue := activity.GetInfo(ctx).TaskQueue
	r.mu.Lock()
	r.inputs, r.queues = append(r.inputs, in), append(r.queues, queue)
	r.mu.Unlock()
	if r.odd != nil {
		if err := r.odd(in, queue); err != nil {
			return contract.Partial{}, err
		}
	}
	out := contract.Partial{Span: in.Span}
	stretches := []gpumux.Span{}
	if in.Source != nil {
		out.Count, stretches = in.End-in.Start, append(stretches, in.Span)
	}
	for _, p := range in.Partials {
		var of []gpumux.Span
		if err := json.Unmarshal(p.Value, &of); err != nil {
			return out, err
		}
		out.Count += p.Count
		stretches = append(stretches, of...)
	}
	if n := len(in.Partials); n > 0 {
		out.Span = gpumux.Span{Start: in.Partials[0].Start, End: in.Partials[n-1].End}
	}
	if len(in.Results) > 0 {
		out.Count, stretches = int64(len(in.Results)), append(stretches, in.Span)
	}
	var err error
	out.Value, err = json.Marshal(stretches)
	return out, err
}

func reduceMap(t *testing.T, r *reducer, in gpumux.MapInput) (*worker, gpumux.Summary, error) {
	t.Helper()
	env := environment(time.Minute)
	w := &worker{}
	w.register(env)
	env.RegisterActivityWithOptions(r.run, activity.RegisterOptions{Name: contract.Reduce})
	env.ExecuteWorkflow(gpumux.MapWorkflow, in)
	require.True(t, env.IsWorkflowCompleted())
	var sum gpumux.Summary
	err := env.GetWorkflowError()
	if err == nil {
		require.NoError(t, env.GetWorkflowResult(&sum))
	}
	return w, sum, err
}

func TestReduce_StretchesCoverEveryItemInOrder(t *testing.T) {
	for _, n := range []int64{1, 99, 5000, 200_000} {
		for _, reduce := range []string{gpumux.ReduceSum, "m:join"} {
			r := &reducer{}
			_, sum, err := reduceMap(t, r, gpumux.MapInput{Task: "square", Range: &gpumux.Range{End: n}, Reduce: reduce, Chunk: 60_000, Output: "maps/a/results.jsonl"})
			require.NoError(t, err)
			var stretches []gpumux.Span
			require.NoError(t, json.Unmarshal(sum.Reduced, &stretches))
			at := int64(0)
			for _, span := range stretches {
				require.Equal(t, at, span.Start)
				at = span.End
			}
			require.Equal(t, n, at)
			last := r.inputs[len(r.inputs)-1]
			require.True(t, last.Final)
			for i, in := range r.inputs {
				require.LessOrEqual(t, len(in.Partials), 16, "no activity gathers all")
				if contract.OwnReduce(reduce) {
					require.Equal(t, gpumux.Queue, r.queues[i])
				} else {
					require.Equal(t, names.PoolQueue("gpu"), r.queues[i])
				}
			}
		}
	}
}

func TestReduce_FaultLeavesTheItems(t *testing.T) {
	r := &reducer{odd: func(in contract.ReduceInput, _ string) error {
		if in.Source != nil {
			return temporal.NewApplicationErrorWithOptions("no number", "task_error", temporal.ApplicationErrorOptions{
				NonRetryable: true, Details: []any{gpumux.Fault{Kind: gpumux.TaskError, Message: "no number"}}})
		}
		return nil
	}}
	_, sum, err := reduceMap(t, r, gpumux.MapInput{Task: "square", Range: &gpumux.Range{End: 5000}, Reduce: gpumux.ReduceSum, Output: "maps/a/results.jsonl"})
	require.NoError(t, err)
	require.Equal(t, "no number", sum.ReduceFault.Message)
	require.EqualValues(t, 5000, sum.Succeeded)
	require.NotEmpty(t, sum.Output)
	require.Nil(t, sum.Reduced)
}

func TestReduce_UnknownTaskRunsNoItem(t *testing.T) {
	r := &reducer{odd: func(contract.ReduceInput, string) error {
		return temporal.NewApplicationErrorWithOptions("no task", "bad_input", temporal.ApplicationErrorOptions{
			NonRetryable: true, Details: []any{gpumux.Fault{Kind: gpumux.BadInput, Message: "no task"}}})
	}}
	w, _, err := reduceMap(t, r, gpumux.MapInput{Task: "square", Range: &gpumux.Range{End: 50}, Reduce: "nobody"})
	require.ErrorContains(t, err, "no task")
	require.Empty(t, w.chunks)
}

func TestReduce_WantOfMemoryClimbsTheLadder(t *testing.T) {
	r := &reducer{odd: func(in contract.ReduceInput, queue string) error {
		if in.Source != nil && queue == names.PoolQueue("small") {
			return temporal.NewApplicationErrorWithOptions("memory", "device_oom", temporal.ApplicationErrorOptions{
				NonRetryable: true, Details: []any{gpumux.Fault{Kind: gpumux.DeviceOOM, Message: "memory"}}})
		}
		return nil
	}}
	_, sum, err := reduceMap(t, r, gpumux.MapInput{Task: "square", Range: &gpumux.Range{End: 5000}, Reduce: "m:join",
		Ladder: []string{"small", "large"}, Output: "maps/a/results.jsonl"})
	require.NoError(t, err)
	require.Nil(t, sum.ReduceFault)
	require.True(t, slices.Contains(r.queues, names.PoolQueue("large")))
}

package workflows_test

import (
	"context"
	"encoding/json"
	"strings"
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

// reducer stands in for the activity Reduce.
type reducer struct {
	mu     sync.Mutex
	inputs []contract.ReduceInput
	queues []string
	odd    func(queue string) error
}

func (r *reducer) run(ctx context.Context, in contract.ReduceInput) (contract.Reduced, error) {
	queue := activity.GetInfo(ctx).TaskQueue
	r.mu.Lock()
	r.inputs, r.queues = append(r.inputs, in), append(r.queues, queue)
	r.mu.Unlock()
	if r.odd != nil {
		if err := r.odd(queue); err != nil {
			return contract.Reduced{}, err
		}
	}
	return contract.Reduced{Value: json.RawMessage("7")}, nil
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

func TestReduce_IsOneActivity(t *testing.T) {
	for n, output := range map[int64]string{0: "", 99: "", 200_000: "maps/a/results.jsonl"} {
		r := &reducer{}
		w, sum, err := reduceMap(t, r, gpumux.MapInput{Task: "square", Range: &gpumux.Range{End: n}, Reduce: "m:join", Chunk: 60_000, Output: output})
		require.NoError(t, err)
		require.Equal(t, "7", string(sum.Reduced))
		require.Equal(t, []string{names.PoolQueue("gpu")}, r.queues)
		require.Equal(t, sum.Output, r.inputs[0].Output)
		require.Empty(t, r.inputs[0].Results, "they lie in the file")
		require.True(t, strings.HasSuffix(r.inputs[0].Key, "/results.jsonl.parts/reduced.json"))
		require.Equal(t, "e1", r.inputs[0].Edition)
		require.Equal(t, min(n, 1)+1, int64(w.asked), "of the task and of the reduce")
	}
}

func TestReduce_FaultLeavesTheItems(t *testing.T) {
	r := &reducer{odd: func(string) error {
		return temporal.NewApplicationErrorWithOptions("no number", "task_error", temporal.ApplicationErrorOptions{
			NonRetryable: true, Details: []any{gpumux.Fault{Kind: gpumux.FaultTaskError, Message: "no number"}}})
	}}
	_, sum, err := reduceMap(t, r, gpumux.MapInput{Task: "square", Range: &gpumux.Range{End: 5000}, Reduce: "m:join", Output: "maps/a/results.jsonl"})
	require.NoError(t, err)
	require.Equal(t, "no number", sum.ReduceFault.Message)
	require.EqualValues(t, 5000, sum.Succeeded)
	require.NotEmpty(t, sum.Output)
	require.Nil(t, sum.Reduced)
}

func TestReduce_UnknownTaskRunsNoItem(t *testing.T) {
	env := environment(time.Minute)
	w := &worker{unknown: "nobody"}
	w.register(env)
	env.ExecuteWorkflow(gpumux.MapWorkflow, gpumux.MapInput{Task: "square", Range: &gpumux.Range{End: 50}, Reduce: "nobody"})
	require.ErrorContains(t, env.GetWorkflowError(), "no task")
	require.Empty(t, w.chunks)
}

func TestReduce_WantOfMemoryClimbsTheLadder(t *testing.T) {
	r := &reducer{odd: func(queue string) error {
		if queue == names.PoolQueue("small") {
			return temporal.NewApplicationErrorWithOptions("memory", "device_oom", temporal.ApplicationErrorOptions{
				NonRetryable: true, Details: []any{gpumux.Fault{Kind: gpumux.FaultDeviceOOM, Message: "memory"}}})
		}
		return nil
	}}
	_, sum, err := reduceMap(t, r, gpumux.MapInput{Task: "square", Range: &gpumux.Range{End: 5000}, Reduce: "m:join",
		Ladder: []string{"small", "large"}, Output: "maps/a/results.jsonl"})
	require.NoError(t, err)
	require.Nil(t, sum.ReduceFault)
	require.Equal(t, []string{names.PoolQueue("small"), names.PoolQueue("large")}, r.queues)
}

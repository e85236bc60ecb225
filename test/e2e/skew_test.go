package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/names"
)

// newer is a workflow of a later gpumux. It runs items on a pool, and then a segment of a
// map.
func newer(ctx workflow.Context, version int) (result contract.ChunkResult, err error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{TaskQueue: names.PoolQueue("cpu"), StartToCloseTimeout: time.Minute})
	err = workflow.ExecuteActivity(ctx, contract.RunChunk, map[string]any{
		"contract": version, "task": "double", "runs": []int{0, 2}, "items": []int{1, 2}, "shards": map[string]any{"of": 4},
		"parts": contract.PartsOf("maps/skew/results.jsonl"), "claim": map[string]any{"id": "skew"},
	}).Get(ctx, &result)
	if err != nil {
		return result, err
	}
	return result, workflow.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID: workflow.GetInfo(ctx).WorkflowExecution.ID + "/segment", TaskQueue: gpumux.Queue,
	}), contract.SegmentWorkflow, map[string]any{
		"contract": contract.Version + 1, "input": map[string]any{"task": "double", "items": []int{}}, "carry": map[string]any{},
	}).Get(ctx, nil)
}

// A workflow of a later gpumux goes on where what is new does not matter. Where it does,
// it waits for workers that know it, and says so.
func TestSkew_ALaterWorkflowIsNotEnded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 1)
	own := worker.New(s.client, "own", worker.Options{})
	own.RegisterWorkflow(newer)
	require.NoError(t, own.Start())
	t.Cleanup(own.Stop)
	start := func(version int) client.WorkflowRun {
		run, err := s.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: "own"}, newer, version)
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.client.TerminateWorkflow(context.Background(), run.GetID(), run.GetRunID(), "tested") })
		return run
	}

	waits := start(contract.Version + 1)
	require.Eventually(t, func() bool {
		d, err := s.client.DescribeWorkflowExecution(t.Context(), waits.GetID(), "")
		require.NoError(t, err)
		if len(d.GetPendingActivities()) == 0 || d.GetPendingActivities()[0].GetAttempt() < 3 {
			return false
		}
		failure := d.GetPendingActivities()[0].GetLastFailure()
		require.Contains(t, failure.GetMessage(), "the input is of version 2 of gpumux's contract, and this worker reads versions up to 1; "+
			"upgrade the workers of the queue gpumux.cpu to the gpumux of the workflow")
		return true
	}, 30*time.Second, 20*time.Millisecond)

	goesOn := start(contract.Version)
	segment := goesOn.GetID() + "/segment"
	require.Eventually(t, func() bool {
		d, err := s.client.DescribeWorkflowExecution(t.Context(), segment, "")
		return err == nil && d.GetPendingWorkflowTask().GetAttempt() > 1
	}, 30*time.Second, 20*time.Millisecond, "the items ran, and the segment is tried again")
	events := s.client.GetWorkflowHistory(t.Context(), segment, "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	told := ""
	for events.HasNext() {
		event, err := events.Next()
		require.NoError(t, err)
		told += event.GetWorkflowTaskFailedEventAttributes().GetFailure().GetMessage()
	}
	require.Contains(t, told, "upgrade the workers of the queue gpumux")
}

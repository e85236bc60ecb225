package e2e

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/test/rig"
)

// absurd are inputs that any client may send to any activity.
var absurd = []any{
	"text", 7, nil, []int{1}, []byte("{}"), map[string]any{"start": "a"}, map[string]any{"nothing": true},
	map[string]any{"runs": []int{0, 1 << 40}, "range": map[string]any{"start": 0, "end": 1 << 40}, "parts": "../m/parts"},
	map[string]any{"start": -5, "end": -1, "items": []int{}}, map[string]any{"items": -1, "parts": "../a", "output": "b"},
	map[string]any{"parts": "../../etc", "results": []any{map[string]any{"index": 1 << 60, "value": 1}}},
	json.RawMessage(`{"task":"","attempts":4611686018427387904,"results":[{"index":-9}]}`),
}

// TestAbsurd_CostsNothing has what any client of the server may do to a worker.
func TestAbsurd_CostsNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 2)
	s.each(map[string]func(*site){
		"Activities": absurdActivities, "WhatARunningMapHears": absurdUpdates, "ALaterWorkflow": laterWorkflow,
	})
}

// refused checks that an activity was refused for good, in words for users.
func refused(t testing.TB, h client.ActivityHandle) {
	t.Helper()
	err := h.Get(t.Context(), nil)
	var refused *temporal.ApplicationError
	require.ErrorAs(t, err, &refused, h.GetID())
	require.Equal(t, string(gpumux.FaultBadInput), refused.Type(), "%s: %v", h.GetID(), err)
	require.True(t, refused.NonRetryable())
	require.NotRegexp(t, `json:|unmarshal|int64`, err.Error())
}

// Any client can start any registered activity with any input. That must end neither the
// worker nor what runs on it, and is never tried again.
func absurdActivities(s *site) {
	run := s.start(gpumux.MapInput{Task: "slow", Items: items(1, 1), Ladder: []string{"cpu"}})
	var handles []client.ActivityHandle
	for i, input := range absurd {
		for name, queue := range map[string]string{
			contract.RunChunk: names.PoolQueue("cpu"), contract.IndexSource: gpumux.Queue,
			contract.FindParts: gpumux.Queue, contract.MergeParts: gpumux.Queue, contract.WriteList: gpumux.Queue,
		} {
			h, err := s.client.ExecuteActivity(s.t.Context(), client.StartActivityOptions{
				ID: name + string(rune('a'+i)), TaskQueue: queue, ScheduleToCloseTimeout: 10 * time.Minute,
			}, name, input)
			require.NoError(s.t, err)
			handles = append(handles, h)
		}
	}
	for _, h := range handles {
		refused(s.t, h)
	}
	var sum gpumux.Summary
	require.NoError(s.t, run.Get(s.t.Context(), &sum))
	require.EqualValues(s.t, 2, sum.Succeeded)
}

// What clients say to a running map is refused where it makes no sense, and never costs a
// task of its workflow.
func absurdUpdates(s *site) {
	run := s.start(gpumux.MapInput{Task: "double", Items: items(1, 1, 1), Ladder: []string{"later"}, Chunk: 1}) // it waits for its pool meanwhile
	s.update(run, gpumux.PauseUpdate)
	for _, input := range absurd {
		for _, signal := range []string{"steer", "segment", "nobody"} {
			require.NoError(s.t, s.client.SignalWorkflow(s.t.Context(), run.GetID(), "", signal, input))
		}
		h, err := s.client.UpdateWorkflow(s.t.Context(), client.UpdateWorkflowOptions{
			WorkflowID: run.GetID(), UpdateName: gpumux.PauseUpdate, Args: []any{input}, WaitForStage: client.WorkflowUpdateStageCompleted,
		})
		if err == nil {
			err = h.Get(s.t.Context(), nil)
		}
		if input == nil {
			require.NoError(s.t, err)
		} else {
			require.ErrorContains(s.t, err, "give no argument")
			_, err := s.client.QueryWorkflow(s.t.Context(), run.GetID(), "", gpumux.ProgressQuery, input)
			require.ErrorContains(s.t, err, "give no argument")
		}
		require.EqualValues(s.t, 3, s.progress(run).Items)
	}
	s.update(run, gpumux.ResumeUpdate)
	s.worker("later", 1)
	var sum gpumux.Summary
	require.NoError(s.t, run.Get(s.t.Context(), &sum))
	require.EqualValues(s.t, 3, sum.Succeeded)
	for events := s.client.GetWorkflowHistory(s.t.Context(), run.GetID(), run.GetRunID(), false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); events.HasNext(); {
		event, err := events.Next()
		require.NoError(s.t, err)
		require.NotEqual(s.t, enums.EVENT_TYPE_WORKFLOW_TASK_FAILED, event.GetEventType(), "%v", event)
	}
}

// newer is a workflow of a later gpumux. It runs items on a pool, and then what only
// later workers know.
func newer(ctx workflow.Context) (result contract.ChunkResult, err error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{TaskQueue: names.PoolQueue("cpu"), StartToCloseTimeout: time.Minute})
	err = workflow.ExecuteActivity(ctx, contract.RunChunk, map[string]any{
		"task": "double", "runs": []int{0, 2}, "items": []int{1, 2}, "shards": map[string]any{"of": 4},
	}).Get(ctx, &result)
	if err != nil {
		return result, err
	}
	workflow.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID: workflow.GetInfo(ctx).WorkflowExecution.ID + "/segment", TaskQueue: gpumux.Queue,
	}), contract.SegmentWorkflow+"2")
	return result, workflow.ExecuteActivity(ctx, contract.RunChunk+"2").Get(ctx, nil)
}

// A workflow of a later gpumux goes on where what is new does not matter. Where it does,
// it waits for workers that know it.
func laterWorkflow(s *site) {
	t := s.t
	service(t, s.client, map[string]any{"newer": newer})
	run, err := s.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: "service"}, newer)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.client.TerminateWorkflow(context.Background(), run.GetID(), run.GetRunID(), "tested") })
	rig.Wait(t, func() bool {
		d, err := s.client.DescribeWorkflowExecution(t.Context(), run.GetID(), "")
		require.NoError(t, err)
		waits := d.GetPendingActivities()
		if len(waits) == 0 || waits[0].GetActivityType().GetName() != contract.RunChunk+"2" || waits[0].GetAttempt() < 3 {
			return false
		}
		require.Contains(t, waits[0].GetLastFailure().GetMessage(), "unable to find activityType=gpumux.RunChunk2")
		return true
	}, time.Minute, 20*time.Millisecond)
	rig.Wait(t, func() bool {
		d, err := s.client.DescribeWorkflowExecution(t.Context(), run.GetID()+"/segment", "")
		return err == nil && d.GetPendingWorkflowTask().GetAttempt() > 1
	}, time.Minute, 20*time.Millisecond, "the items ran, and the segment is tried again")
}

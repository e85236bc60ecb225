package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/names"
)

// absurd are inputs that any client may send to any activity.
var absurd = []any{
	"text", 7, nil, []int{1}, []byte("{}"), map[string]any{"start": "a"}, map[string]any{"nothing": true},
	map[string]any{"runs": []int{0, 1 << 40}, "range": map[string]any{"start": 0, "end": 1 << 40}, "parts": "../m/parts"},
	map[string]any{"start": -5, "end": -1, "items": []int{}}, map[string]any{"items": -1, "parts": "../a", "output": "b"},
	map[string]any{"parts": "../../etc", "results": []any{map[string]any{"index": 1 << 60, "value": 1}}},
	json.RawMessage(`{"reduce":"","attempts":4611686018427387904,"results":[{"index":-9}]}`),
}

// Any client can start any registered activity with any input. That must end neither the
// worker nor what runs on it, and is never tried again.
func TestAbsurd_ActivitiesCostNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 1)
	run := s.start(gpumux.MapInput{Task: "slow", Items: items(1, 1), Ladder: []string{"cpu"}})
	var handles []client.ActivityHandle
	for i, input := range absurd {
		for name, queue := range map[string]string{
			contract.RunChunk: names.PoolQueue("cpu"), contract.Reduce: names.PoolQueue("cpu"), contract.IndexSource: gpumux.Queue,
			contract.FindParts: gpumux.Queue, contract.MergeParts: gpumux.Queue,
			contract.WriteList: gpumux.Queue,
		} {
			h, err := s.client.ExecuteActivity(t.Context(), client.StartActivityOptions{
				ID: name + string(rune('a'+i)), TaskQueue: queue, ScheduleToCloseTimeout: 10 * time.Minute,
			}, name, input)
			require.NoError(t, err)
			handles = append(handles, h)
		}
	}
	for _, h := range handles {
		err := h.Get(t.Context(), nil)
		var refused *temporal.ApplicationError
		require.ErrorAs(t, err, &refused, h.GetID())
		require.Equal(t, string(gpumux.FaultBadInput), refused.Type(), "%s: %v", h.GetID(), err)
		require.True(t, refused.NonRetryable())
		require.NotRegexp(t, `json:|unmarshal|int64`, err.Error())
	}
	var sum gpumux.Summary
	require.NoError(t, run.Get(t.Context(), &sum))
	require.EqualValues(t, 2, sum.Succeeded)
}

// What clients say to a running map is refused where it makes no sense, and never costs a
// task of its workflow.
func TestAbsurd_WhatAMapIsTold(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("other", 1) // the map waits for its pool while it is told things
	run := s.start(gpumux.MapInput{Task: "double", Items: items(1, 1, 1), Ladder: []string{"cpu"}, Chunk: 1})
	steer := func(name string) {
		h, err := s.client.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
			WorkflowID: run.GetID(), UpdateName: name, WaitForStage: client.WorkflowUpdateStageCompleted,
		})
		require.NoError(t, err)
		require.NoError(t, h.Get(t.Context(), nil))
	}
	steer(gpumux.PauseUpdate)
	for _, input := range absurd {
		for _, signal := range []string{"steer", "segment", "nobody"} {
			require.NoError(t, s.client.SignalWorkflow(t.Context(), run.GetID(), "", signal, input))
		}
		h, err := s.client.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
			WorkflowID: run.GetID(), UpdateName: gpumux.WindowUpdate, Args: []any{input}, WaitForStage: client.WorkflowUpdateStageCompleted,
		})
		if err == nil {
			err = h.Get(t.Context(), nil)
		}
		if input == 7 {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "invalid ")
		}
		answer, err := s.client.QueryWorkflow(t.Context(), run.GetID(), "", gpumux.ProgressQuery, input)
		if input != nil {
			require.ErrorContains(t, err, "give no argument")
			answer, err = s.client.QueryWorkflow(t.Context(), run.GetID(), "", gpumux.ProgressQuery)
		}
		require.NoError(t, err)
		var p gpumux.Progress
		require.NoError(t, answer.Get(&p))
		require.Equal(t, 3, int(p.Items))
	}
	steer(gpumux.ResumeUpdate)
	s.worker("cpu", 1)
	var sum gpumux.Summary
	require.NoError(t, run.Get(t.Context(), &sum))
	require.EqualValues(t, 3, sum.Succeeded)
	events := s.client.GetWorkflowHistory(t.Context(), run.GetID(), run.GetRunID(), false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		require.NoError(t, err)
		require.NotEqual(t, enums.EVENT_TYPE_WORKFLOW_TASK_FAILED, event.GetEventType(), "%v", event)
	}
}

// A map or a segment that cannot be ends at once, whoever starts it.
func TestAbsurd_WorkflowsEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 1)
	for _, workflow := range []string{gpumux.MapWorkflow, contract.SegmentWorkflow} {
		for _, input := range absurd {
			run, err := s.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: gpumux.Queue}, workflow, input)
			require.NoError(t, err)
			var refused *temporal.ApplicationError
			require.ErrorAs(t, run.Get(t.Context(), nil), &refused)
			require.Equal(t, string(gpumux.FaultBadInput), refused.Type())
		}
	}
}

// A worker serves no queue for a stranger's lease but the lease's own, and a map's output
// is never an object of the store's own.
func TestAbsurd_NamesOfOthers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 2)
	for id, queue := range map[string]string{
		"gpumux.cpu": "gpumux.cpu", "gpumux": "gpumux", "gpumux.lease": "gpumux.lease.1", "gpumux.lease.a": "gpumux.lease.b.1", "": "gpumux.cpu",
	} {
		h, err := s.client.ExecuteActivity(t.Context(), client.StartActivityOptions{
			ID: "hold " + id, TaskQueue: contract.LeaseQueue(names.PoolQueue("cpu")), ScheduleToCloseTimeout: 10 * time.Minute,
		}, contract.HoldSlot, contract.Lease{ID: id, Queue: queue, Workflow: "w", TTL: gpumux.Duration(time.Minute)})
		require.NoError(t, err)
		var refused *temporal.ApplicationError
		require.ErrorAs(t, h.Get(t.Context(), nil), &refused)
		require.Equal(t, string(gpumux.FaultBadInput), refused.Type())
	}
	for _, output := range []string{"store.json", s.store + "/store.json", s.store + "/sources/" + strings.Repeat("0", 64) + ".jsonl",
		"maps/a.parts/b.jsonl", s.store + "/maps/a.parts/b.jsonl", s.store + "/maps/a.parts"} {
		_, err := s.run(gpumux.MapInput{Task: "double", Items: items(1, 2), Ladder: []string{"cpu"}, Output: output})
		var refused *temporal.ApplicationError
		require.ErrorAs(t, err, &refused, output)
		require.Equal(t, string(gpumux.FaultBadInput), refused.Type())
	}
	sum, err := s.run(gpumux.MapInput{Task: "double", Items: items(1, 2), Ladder: []string{"cpu"}, Output: "maps/a.jsonl"})
	require.NoError(t, err)
	require.EqualValues(t, 2, sum.Succeeded)
}

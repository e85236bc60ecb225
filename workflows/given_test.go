package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/workflows"
)

// Wrong input from a client ends the workflow at once with words for users. It never
// blocks the workflow's tasks.
func TestRegistered_WhatCannotBeEndsTheMap(t *testing.T) {
	for name, c := range map[string]struct {
		workflow string
		in       any
		want     string
	}{
		"types":               {gpumux.MapWorkflow, map[string]any{"task": 1, "items": "x"}, "invalid map input: items: is a string; a list belongs here"},
		"a step":              {gpumux.MapWorkflow, map[string]any{"task": "t", "range": map[string]any{"start": 0, "end": 9, "step": 2}}, "range.step: is no field; there are start, end"},
		"a state":             {gpumux.MapWorkflow, map[string]any{"task": "t", "items": []int{1}, "carry": map[string]any{}}, "carry: is no field"},
		"a run's own state":   {gpumux.MapWorkflow, map[string]any{"input": map[string]any{"task": "t", "items": []int{1}}, "carry": map[string]any{"todo": []int{}}}, "carry: is no field"},
		"a text":              {gpumux.MapWorkflow, "t", "an object belongs here"},
		"endless":             {gpumux.MapWorkflow, map[string]any{"task": "t", "range": map[string]any{"start": 0, "end": 1 << 62}}, "are more than the 1000000000000 items that a map may have"},
		"a segment":           {contract.SegmentWorkflow, map[string]any{"task": "t", "items": []int{1}}, "start gpumux.Map"},
		"a segment by itself": {contract.SegmentWorkflow, map[string]any{"input": map[string]any{"task": "t", "items": []int{1}}, "carry": map[string]any{"todo": []int{}, "items": 1}}, "start gpumux.Map"},
	} {
		t.Run(name, func(t *testing.T) {
			env := run(t, &worker{}, c.workflow, c.in)
			err := env.GetWorkflowError()
			require.ErrorContains(t, err, c.want)
			var refused *temporal.ApplicationError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, string(gpumux.FaultBadInput), refused.Type())
			require.True(t, refused.NonRetryable())
			require.Equal(t, gpumux.FaultBadInput, workflows.FaultOf(err).Kind)
		})
	}
}

// encoded is an argument as the server hands it on. The test environment does not encode
// the arguments of updates.
func encoded(t *testing.T, value any) converter.RawValue {
	payload, err := converter.GetDefaultDataConverter().ToPayload(value)
	require.NoError(t, err)
	return converter.NewRawValue(payload)
}

func TestRegistered_AWindowThatCannotBeIsRejected(t *testing.T) {
	env := environment(20 * time.Second)
	(&worker{perItem: time.Second}).register(env)
	rejected := map[string]error{}
	send := func(name string, args ...any) {
		env.UpdateWorkflow(gpumux.WindowUpdate, name, &testsuite.TestUpdateCallback{
			OnAccept: func() {}, OnReject: func(err error) { rejected[name] = err }, OnComplete: func(any, error) {},
		}, args...)
	}
	env.RegisterDelayedCallback(func() {
		send("text", encoded(t, "ten"))
		send("large", encoded(t, gpumux.MaxWindow+1))
		send("none", encoded(t, nil))
		send("good", encoded(t, 5))
	}, 0)
	env.ExecuteWorkflow(gpumux.MapWorkflow, gpumux.MapInput{Task: "square", Range: &gpumux.Range{End: 50}})
	require.NoError(t, env.GetWorkflowError())
	require.ErrorContains(t, rejected["text"], "JSON string does not belong here")
	require.ErrorContains(t, rejected["large"], "is outside 0 (automatic) to 16000")
	require.ErrorContains(t, rejected["none"], "is missing")
	require.NotContains(t, rejected, "good")
}

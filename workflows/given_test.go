package workflows_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

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

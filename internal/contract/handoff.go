package contract

import (
	"cmp"
	"fmt"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
)

// ReadMap reads the input of this run of gpumux.Map, with the state that the run before
// left. It takes one argument.
func ReadMap(ctx workflow.Context, raw, second converter.RawValue) (gpumux.MapInput, *Carry, error) {
	if workflow.GetInfo(ctx).ContinuedExecutionRunID != "" {
		if in, carry, err := handoff(raw); err == nil { // else a cron schedule starts the map again
			return in, carry, nil
		}
	}
	var in gpumux.MapInput
	err := cmp.Or(Absent(second, "is followed by a second argument; give one object"), DecodePayload(raw, &in))
	return in, nil, err
}

func ReadSegment(ctx workflow.Context, raw converter.RawValue) (gpumux.MapInput, *Carry, error) {
	if workflow.GetInfo(ctx).ParentWorkflowExecution == nil {
		return gpumux.MapInput{}, nil, fmt.Errorf("%s is a part of a map; start %s", SegmentWorkflow, gpumux.MapWorkflow)
	}
	return handoff(raw)
}

func handoff(raw converter.RawValue) (gpumux.MapInput, *Carry, error) {
	var c Handoff
	err := DecodePayload(raw, &c)
	return gpumux.MapInput(c.Input), c.Carry, err
}

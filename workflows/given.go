package workflows

import (
	"errors"
	"fmt"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/payload"
)

// decodeInput reads the input of this run of gpumux.Map, with the state that the run
// before left.
func decodeInput(ctx workflow.Context, raw converter.RawValue) (gpumux.MapInput, *contract.Carry, error) {
	if workflow.GetInfo(ctx).ContinuedExecutionRunID != "" {
		if in, carry, err := decodeHandoff(raw); err == nil { // else a cron schedule starts the map again
			return in, carry, nil
		}
	}
	var in gpumux.MapInput
	err := payload.DecodeMap(raw, &in)
	return in, nil, err
}

// decodeSegment reads the input of gpumux.Segment.
func decodeSegment(ctx workflow.Context, raw converter.RawValue) (gpumux.MapInput, *contract.Carry, error) {
	if workflow.GetInfo(ctx).ParentWorkflowExecution == nil {
		return gpumux.MapInput{}, nil, fmt.Errorf("%s is a part of a map; start %s", contract.SegmentWorkflow, gpumux.MapWorkflow)
	}
	return decodeHandoff(raw)
}

// decodeHandoff reads what another run of a map left. If that was of a later version, it
// panics: Temporal tries the task of the workflow again until a worker of that version
// has it, and shows the error meanwhile.
func decodeHandoff(raw converter.RawValue) (gpumux.MapInput, *contract.Carry, error) {
	var c contract.Handoff
	err := payload.Decode(raw, &c)
	var skew *contract.SkewError
	if errors.As(err, &skew) {
		panic(fmt.Sprintf("%v; upgrade the workers of the queue %s", skew, gpumux.Queue))
	}
	return gpumux.MapInput(c.Input), c.Carry, err
}

// check returns an error if a result cannot be that of a piece: a stand-in for a worker
// must neither keep a map running for ever nor leave items without a result.
func (e *engine) check(piece contract.Piece, r contract.ChunkResult) error {
	wrong := func(format string, args ...any) error {
		return faultError(fmt.Sprintf("the answer of %s to %s of task %s cannot be: ", contract.RunChunk, piece.Describe(), e.in.Task)+
			fmt.Sprintf(format, args...), nil)
	}
	if r.Covered < 0 || r.Covered > piece.Len() {
		return wrong("it covers %d", r.Covered)
	}
	if r.Covered == 0 && !((e.in.FailFast || e.most >= 0) && r.Failed > 0) {
		return wrong("it covers none of them, so it did nothing; a finished chunk covers all")
	}
	if e.in.Edition != "" && r.Edition != "" && r.Edition != e.in.Edition {
		return wrong("items ran with edition %.60s of the code, and the map runs with %s", r.Edition, e.in.Edition)
	}
	if len(r.Again) > 0 && (e.in.Backoff == 0 || piece.Tries+1 >= e.in.Attempts) {
		return wrong("it hands back %d items to be tried again", r.Again.Len())
	}
	if e.onResults == nil || e.parts != "" {
		return nil
	}
	var told contract.Runs
	for _, result := range r.Results {
		if !piece.Runs.Has(result.Index) {
			return wrong("it has a result of item %d", result.Index)
		}
		told.Add(result.Index)
	}
	told = told.Union(r.Escalate).Union(r.Again)
	for _, run := range piece.Runs.First(r.Covered) {
		if !told.Covers(run) {
			return wrong("it lacks the result of one of the items %d to %d", run.Start, run.End-1)
		}
	}
	return nil
}

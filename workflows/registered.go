package workflows

import (
	"errors"
	"fmt"
	"path"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/payload"
	"github.com/gpumux/gpumux/internal/text"
)

// Register registers gpumux.Map, its segments and gpumux.Describe with a worker of the
// queue gpumux.
func Register(r worker.WorkflowRegistry) {
	r.RegisterWorkflowWithOptions(runMap, workflow.RegisterOptions{Name: gpumux.MapWorkflow})
	r.RegisterWorkflowWithOptions(runSegment, workflow.RegisterOptions{Name: contract.SegmentWorkflow})
	r.RegisterWorkflowWithOptions(describe, workflow.RegisterOptions{Name: contract.DescribeWorkflow})
}

// describe is gpumux.Describe: what the worker of this workflow's queue offers.
func describe(ctx workflow.Context) (offer contract.WorkerInfo, err error) {
	asking := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		ScheduleToCloseTimeout: contract.HeartbeatTimeout, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
	})
	err = workflow.ExecuteActivity(asking, contract.DescribeWorker).Get(ctx, &offer)
	return offer, err
}

// runMap is gpumux.Map: a map that any Temporal client can start with a JSON input.
func runMap(ctx workflow.Context, raw converter.RawValue) (gpumux.Summary, error) {
	in, carry, err := decodeInput(ctx, raw)
	if err != nil {
		return gpumux.Summary{}, invalid(err)
	}
	m := &mapping{in: in, started: workflow.Now(ctx), phase: gpumux.PhaseIndexing, asked: in.Output != ""}
	m.segments.of = m
	if carry != nil {
		m.started = carry.Started
	}
	if m.in.Output == "" {
		info := workflow.GetInfo(ctx)
		m.in.Output = path.Join("maps", pathElement(info.WorkflowExecution.ID), info.FirstRunID, "results.jsonl")
	}
	m.engine = newEngine(workflow.GetInfo(ctx).WorkflowExecution.ID, m.in, max(0, in.Len()))
	m.engine.onChange, m.reducing.of = m.show, m.engine
	if err := m.listen(ctx); err != nil {
		return gpumux.Summary{}, err
	}
	m.show(ctx)
	if err := m.prepare(ctx, carry); err != nil {
		return gpumux.Summary{}, unwrapFault(err)
	}
	for {
		m.phase = gpumux.PhaseRunning
		m.show(ctx)
		if err := m.segments.work(ctx, carry != nil); err != nil {
			return gpumux.Summary{}, err
		}
		if len(m.engine.todo) > 0 {
			rest := m.engine.carry()
			rest.Started, rest.Segments, rest.Rounds = m.started, m.segments.count, m.rounds
			rest.ReduceEdition, rest.Cached = m.reducing.edition, m.cached
			return gpumux.Summary{}, workflow.NewContinueAsNewError(ctx, gpumux.MapWorkflow, contract.Handoff{Input: contract.Input(m.in), Carry: rest})
		}
		summary, done, err := m.finish(ctx)
		if err != nil || done {
			return summary, err
		}
	}
}

// housekeeping are the options of activities on the queue gpumux. They are tried again
// until they work: a store that is full or away pauses the map and loses nothing.
func housekeeping(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: gpumux.Queue, StartToCloseTimeout: endless, HeartbeatTimeout: contract.HeartbeatTimeout, Summary: text.Plain(summary),
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: 200 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: 10 * time.Second,
			NonRetryableErrorTypes: tooLarge,
		},
	})
}

// decodeInput reads the input of this run of gpumux.Map, with the state that the run
// before left.
func decodeInput(ctx workflow.Context, raw converter.RawValue) (gpumux.MapInput, *contract.Carry, error) {
	if workflow.GetInfo(ctx).ContinuedExecutionRunID != "" {
		if in, carry, err := decodeHandoff(raw); err == nil { // else a cron schedule starts the map again
			return in, carry, nil
		}
	}
	// A run from before this rule, or before the worker's keys, goes on as it began.
	if payload.Unsealed(raw) && workflow.GetVersion(ctx, "refuse unencrypted inputs", workflow.DefaultVersion, 1) == 1 {
		return gpumux.MapInput{}, nil, payload.ErrUnsealed
	}
	var in gpumux.MapInput
	err := payload.Decode(raw, &in)
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

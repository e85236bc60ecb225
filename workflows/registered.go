package workflows

import (
	"cmp"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/text"
)

// Register registers gpumux.Map, its segments and gpumux.Describe with a worker of the
// queue gpumux.
func Register(r worker.WorkflowRegistry) {
	r.RegisterWorkflowWithOptions(runMap, workflow.RegisterOptions{Name: gpumux.MapWorkflow})
	r.RegisterWorkflowWithOptions(runSegment, workflow.RegisterOptions{Name: contract.SegmentWorkflow})
	r.RegisterWorkflowWithOptions(describe, workflow.RegisterOptions{Name: contract.DescribeWorkflow})
}

// describe is gpumux.Describe: what the worker of this workflow's queue offers. It passes
// on its input, if there is one.
func describe(ctx workflow.Context, raw converter.RawValue) (offer contract.WorkerInfo, err error) {
	var input []any
	if contract.Absent(raw, "") != nil {
		input = append(input, raw)
	}
	asking := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		ScheduleToCloseTimeout: contract.AnswerTimeout, Summary: "describe the worker", RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
	})
	err = contract.Get(ctx, workflow.ExecuteActivity(asking, contract.DescribeWorker, input...), &offer)
	return offer, err
}

// runMap is gpumux.Map: a map that any Temporal client can start with a JSON input.
func runMap(ctx workflow.Context, raw, second converter.RawValue) (summary gpumux.Summary, err error) {
	in, carry, err := contract.ReadMap(ctx, raw, second)
	if err != nil {
		return gpumux.Summary{}, invalid(err)
	}
	m := &mapping{in: in, started: workflow.Now(ctx), phase: gpumux.PhaseIndexing}
	m.segments.owner = m
	if carry != nil {
		m.started = carry.Started
	}
	info := workflow.GetInfo(ctx)
	usual := contract.OutputOf(info.WorkflowExecution.ID, info.FirstRunID)
	m.in.Output = cmp.Or(m.in.Output, usual)
	m.engine = newEngine(info.WorkflowExecution.ID, m.in, max(0, in.Len()))
	m.engine.asked = m.in.Output != usual // also in a later run of the map
	m.engine.onChange = m.show
	if err := m.listen(ctx); err != nil {
		return gpumux.Summary{}, err
	}
	m.show(ctx)
	err = m.engine.within(ctx, m.started, m.done, func(ctx workflow.Context) error {
		summary, err = m.run(ctx, carry)
		return err
	})
	return summary, err
}

func (m *mapping) run(ctx workflow.Context, carry *contract.Carry) (gpumux.Summary, error) {
	if err := m.prepare(ctx, carry); err != nil {
		return gpumux.Summary{}, unwrapFault(err)
	}
	for {
		m.phase = gpumux.PhaseRunning
		m.show(ctx)
		if err := m.segments.work(ctx, carry != nil); err != nil {
			return gpumux.Summary{}, err
		}
		if m.engine.left() > 0 {
			rest := m.engine.carry()
			rest.Started, rest.Segments, rest.Rounds = m.started, m.segments.count, m.rounds
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

package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/text"
)

type reducing struct {
	engine  *engine
	edition string
}

// check returns an error before any item runs if no worker knows the reduce.
func (r *reducing) check(ctx workflow.Context) error {
	if r.engine.in.Reduce == "" {
		return nil
	}
	last := r.engine.last()
	found, err := last.askEdition(ctx, r.engine.in.Reduce)
	if r.edition = found.Edition; last.in.Edition == gpumux.AnyEdition {
		r.edition = gpumux.AnyEdition
	}
	return err
}

// askEdition asks a worker of the stage's first pool for the edition of a task's code.
func (s *stage) askEdition(ctx workflow.Context, task string) (found contract.Edition, err error) {
	e := s.e
	options := workflow.ActivityOptions{
		StartToCloseTimeout: contract.AnswerTimeout, WaitForCancellation: true,
		Summary:     text.Plain("find the edition of " + task),
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: 100 * time.Millisecond, MaximumInterval: 10 * time.Second},
		Priority:    fairly(ctx, e.in, e.id),
	}
	s.asking = true
	if e.onChange != nil {
		e.onChange(ctx)
	}
	defer func() { s.asking = false }()
	return found, s.ladder.runOn(ctx, 0, 0, func(within workflow.Context, queue string) error {
		options.TaskQueue = queue
		return contract.Get(ctx, workflow.ExecuteActivity(workflow.WithActivityOptions(within, options), contract.FindEdition,
			contract.EditionInput{Task: task}), &found)
	})
}

// run puts the value of the summary's results into the summary, or the fault of the
// reduce: the items are done in any case.
func (r *reducing) run(ctx workflow.Context, summary *gpumux.Summary) error {
	in := contract.ReduceInput{
		Map: r.engine.id, Reduce: r.engine.in.Reduce, Edition: r.edition, Timeout: r.engine.in.Timeout, Attempts: r.engine.in.Attempts,
		Arg: r.engine.in.Arg, ArgFile: r.engine.in.ArgFile, Output: summary.Output,
	}
	if in.Output == "" {
		in.Results = summary.Results
	}
	if parts := r.engine.last().parts; parts != "" {
		in.Key = contract.ReducedOf(parts)
	}
	out, err := r.execute(ctx, in)
	if fault := contract.FaultTold(err); fault != nil && ctx.Err() == nil {
		summary.ReduceFault = fault
		return nil
	}
	if err != nil {
		return unwrapFault(err)
	}
	summary.Reduced, summary.ReducedOutput = out.Value, out.URL
	return nil
}

// runInline is run for a map without a store, with the values that it collected.
func (r *reducing) runInline(ctx workflow.Context, summary *gpumux.Summary, values collector) error {
	if values.bytes > gpumux.InlineBytes {
		summary.ReduceFault = &gpumux.Fault{Kind: gpumux.FaultBadInput, Op: "reduce", Message: fmt.Sprintf("the values have %s, more than the %s that travel inline",
			gpumux.Size(values.bytes), gpumux.Size(gpumux.InlineBytes)), Hint: "put the items in a file of the store and use MapSource"}
		return nil
	}
	summary.Results = values.ordered()
	err := r.run(ctx, summary)
	summary.Results = nil
	return err
}

// execute runs the activity, which climbs the ladder when a value needs more memory than
// a rung has.
func (r *reducing) execute(ctx workflow.Context, in contract.ReduceInput) (out contract.Reduced, err error) {
	e := r.engine
	options := workflow.GetActivityOptions(housekeeping(ctx, fmt.Sprintf("reduce %s of %d items", in.Reduce, e.total)))
	options.WaitForCancellation, options.HeartbeatTimeout = true, contract.TimeoutOf(e.contact)
	options.Priority = fairly(ctx, e.in, e.id)
	ladder := e.last().ladder
	for rung := range ladder.rungs {
		err = ladder.runOn(ctx, rung, 1, func(within workflow.Context, queue string) error {
			options.TaskQueue = queue
			return contract.Get(ctx, workflow.ExecuteActivity(workflow.WithActivityOptions(within, options), contract.Reduce, in), &out)
		})
		if fault := contract.FaultTold(err); fault == nil || !fault.Kind.Memory() {
			break
		}
	}
	return out, err
}

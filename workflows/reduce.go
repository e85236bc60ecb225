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
	found, err := askEdition(ctx, r.engine, r.engine.in.Reduce)
	if r.edition = found.Edition; r.engine.in.Edition == gpumux.AnyEdition {
		r.edition = gpumux.AnyEdition
	}
	return err
}

// askEdition asks a worker of a map's first pool for the edition of a task's code.
func askEdition(ctx workflow.Context, e *engine, task string) (found contract.Edition, err error) {
	options := workflow.ActivityOptions{
		StartToCloseTimeout: contract.AnswerTimeout, WaitForCancellation: true,
		Summary:     text.Plain("find the edition of " + task),
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: 100 * time.Millisecond, MaximumInterval: 10 * time.Second},
		Priority:    fairly(ctx, e.in, e.id),
	}
	e.asking = true
	if e.onChange != nil {
		e.onChange(ctx)
	}
	defer func() { e.asking = false }()
	return found, e.ladder.runOn(ctx, 0, 0, func(within workflow.Context, queue string) error {
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
	if r.engine.parts != "" {
		in.Key = contract.ReducedOf(r.engine.parts)
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
	for rung := range e.ladder.rungs {
		err = e.ladder.runOn(ctx, rung, 1, func(within workflow.Context, queue string) error {
			options.TaskQueue = queue
			return contract.Get(ctx, workflow.ExecuteActivity(workflow.WithActivityOptions(within, options), contract.Reduce, in), &out)
		})
		if fault := contract.FaultTold(err); fault == nil || !fault.Kind.Memory() {
			break
		}
	}
	return out, err
}

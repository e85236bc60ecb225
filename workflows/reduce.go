package workflows

import (
	"fmt"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// checkReduce returns an error before any item runs if no worker knows the reduce.
func (m *mapping) checkReduce(ctx workflow.Context) error {
	if m.in.Reduce == "" || contract.OwnReduce(m.in.Reduce) {
		return nil
	}
	found, err := m.askEdition(ctx, m.in.Reduce)
	m.reduceEdition = found.Edition
	return err
}

// reduce puts the value into the summary, or the fault of the reduce: the items are done
// in any case.
func (m *mapping) reduce(ctx workflow.Context, summary *gpumux.Summary) error {
	if m.in.Reduce == "" {
		return nil
	}
	m.phase = gpumux.Reducing
	m.show(ctx)
	out, err := m.runReduce(ctx, contract.ReduceInput{
		Map: m.engine.id, Reduce: m.in.Reduce, Edition: m.reduceEdition, Timeout: m.in.Timeout, Attempts: m.in.Attempts,
		Arg: m.in.Arg, Output: summary.Output, Results: summary.Results, Key: contract.ReducedOf(m.engine.parts),
	})
	if fault := FaultOf(err); fault != nil && ctx.Err() == nil {
		summary.ReduceFault = fault
		return nil
	}
	if err != nil {
		return unwrapFault(err)
	}
	summary.Reduced, summary.ReducedOutput = out.Value, out.URL
	return nil
}

// runReduce runs the reduce. A task climbs the ladder when a value needs more memory than
// a rung has.
func (m *mapping) runReduce(ctx workflow.Context, in contract.ReduceInput) (out contract.Reduced, err error) {
	light := lightOptions(ctx, fmt.Sprintf("reduce %s of %d items", in.Reduce, m.engine.total))
	if contract.OwnReduce(in.Reduce) {
		return out, workflow.ExecuteActivity(light, contract.Reduce, in).Get(ctx, &out)
	}
	options := workflow.GetActivityOptions(light)
	options.WaitForCancellation, options.HeartbeatTimeout = true, contract.TimeoutOf(m.engine.contact)
	options.Priority = temporal.Priority{PriorityKey: m.in.Priority, FairnessKey: m.in.FairnessKey}
	for rung := range m.engine.rungs {
		err = m.engine.runOn(ctx, rung, func(within workflow.Context, queue string) error {
			options.TaskQueue = queue
			return workflow.ExecuteActivity(workflow.WithActivityOptions(within, options), contract.Reduce, in).Get(ctx, &out)
		})
		if fault := FaultOf(err); fault == nil || !fault.Kind.Memory() {
			break
		}
	}
	return out, err
}

package workflows

import (
	"fmt"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/workflows/sizing"
)

const (
	// mostLeaves bounds the stretches of a reduce, and so what it adds to the map's history.
	mostLeaves = 512
	// branch is how many partials one activity combines.
	branch = 16
	// A stretch holds so many items, or fewer if their results have more than so many bytes together.
	ownLeafItems, ownLeafBytes   = 1 << 17, 256 << 20
	taskLeafItems, taskLeafBytes = 4096, 16 << 20
	// ownLeaves is how many stretches of a reduce of gpumux's own are read at once.
	ownLeaves = 8
)

// reduction makes one value of a map's results: first of stretches of them, then of the stretches' values.
type reduction struct {
	*mapping
	// rung is that of a reduce that is a task; it climbs the ladder when a value needs more memory than a rung has.
	rung int
}

// reducing is the input that all activities of the reduce share.
func (r *reduction) reducing() contract.ReduceInput {
	return contract.ReduceInput{
		Map: r.engine.id, Reduce: r.in.Reduce, Edition: r.reduceEdition, Timeout: r.in.Timeout, Attempts: r.in.Attempts, Arg: r.in.Arg,
		Folder: contract.ReduceOf(r.engine.parts),
	}
}

// checkKnown returns an error before any item runs if no worker knows the reduce.
func (r *reduction) checkKnown(ctx workflow.Context) error {
	if r.in.Reduce == "" || contract.OwnReduce(r.in.Reduce) {
		return nil
	}
	found, err := r.runActivity(ctx, r.reducing(), "look for reduce "+r.in.Reduce)
	r.reduceEdition = found.Edition
	return err
}

// runActivity runs one activity of the reduce.
func (r *reduction) runActivity(ctx workflow.Context, in contract.ReduceInput, summary string) (out contract.Partial, err error) {
	light := lightOptions(ctx, summary)
	if contract.OwnReduce(in.Reduce) {
		return out, workflow.ExecuteActivity(light, contract.Reduce, in).Get(ctx, &out)
	}
	options := workflow.GetActivityOptions(light)
	options.WaitForCancellation, options.HeartbeatTimeout = true, contract.TimeoutOf(r.engine.contact)
	options.Priority = temporal.Priority{PriorityKey: r.in.Priority, FairnessKey: r.in.FairnessKey}
	for {
		rung := r.rung
		err = r.engine.runOn(ctx, rung, func(within workflow.Context, queue string) error {
			options.TaskQueue = queue
			return workflow.ExecuteActivity(workflow.WithActivityOptions(within, options), contract.Reduce, in).Get(ctx, &out)
		})
		fault := FaultOf(err)
		if fault == nil || !fault.Kind.Memory() || rung+1 >= len(r.engine.rungs) {
			return out, err
		}
		r.rung = max(r.rung, rung+1)
	}
}

// addTo puts the value into the summary, or the fault of the reduce: the items are done in any case.
func (r *reduction) addTo(ctx workflow.Context, summary *gpumux.Summary, results *gpumux.Source) error {
	if r.in.Reduce == "" {
		return nil
	}
	r.phase = gpumux.Reducing
	r.show(ctx)
	out, err := r.value(ctx, summary.Results, results)
	if fault := FaultOf(err); fault != nil && ctx.Err() == nil {
		summary.ReduceFault = fault
		return nil
	}
	if err != nil {
		return unwrapFault(err)
	}
	summary.Reduced, summary.ReducedOutput = out.Value, out.Key
	return nil
}

func (r *reduction) value(ctx workflow.Context, inline []gpumux.Result, results *gpumux.Source) (contract.Partial, error) {
	in := r.reducing()
	in.Final = true
	if results == nil {
		in.Results, in.End = inline, r.engine.total
		return r.runActivity(ctx, in, fmt.Sprintf("reduce %s of %d items", in.Reduce, r.engine.total))
	}
	partials, err := r.leaves(ctx, *results)
	for err == nil && len(partials) > branch {
		partials, err = r.branches(ctx, partials)
	}
	if err != nil {
		return contract.Partial{}, err
	}
	in.Partials, in.Span = partials, gpumux.Span{End: r.engine.total}
	if len(partials) == 0 {
		in.Results = []gpumux.Result{}
	}
	return r.runActivity(ctx, in, fmt.Sprintf("reduce %s of %d items", in.Reduce, r.engine.total))
}

// leaves reduces stretches of the results file, some at a time.
func (r *reduction) leaves(ctx workflow.Context, results gpumux.Source) ([]contract.Partial, error) {
	size, abreast := leafItems(r.in.Reduce, results), ownLeaves
	if !contract.OwnReduce(r.in.Reduce) {
		abreast = max(sizing.LeastWindow, 2*r.engine.sizer.Seen)
	}
	count := int((results.Items + size - 1) / size)
	return r.spread(ctx, count, abreast, func(i int) (contract.ReduceInput, string) {
		in := r.reducing()
		in.Source = &results
		in.Span = gpumux.Span{Start: int64(i) * size, End: min(results.Items, int64(i+1)*size)}
		return in, fmt.Sprintf("reduce %s of items %d-%d", in.Reduce, in.Start, in.End-1)
	})
}

// leafItems is how many items a stretch has. It is the same for every run over the same results.
func leafItems(reduce string, results gpumux.Source) int64 {
	items, bytes := int64(taskLeafItems), int64(taskLeafBytes)
	if contract.OwnReduce(reduce) {
		items, bytes = ownLeafItems, ownLeafBytes
	}
	mean := max(1, results.Bytes/max(1, results.Items))
	return max(min(items, bytes/mean), 2, (results.Items+mostLeaves-1)/mostLeaves)
}

// branches combines neighbours.
func (r *reduction) branches(ctx workflow.Context, partials []contract.Partial) ([]contract.Partial, error) {
	return r.spread(ctx, (len(partials)+branch-1)/branch, ownLeaves, func(i int) (contract.ReduceInput, string) {
		in := r.reducing()
		in.Partials = partials[i*branch : min(len(partials), (i+1)*branch)]
		first, last := in.Partials[0].Start, in.Partials[len(in.Partials)-1].End-1
		return in, fmt.Sprintf("reduce %s of items %d-%d", in.Reduce, first, last)
	})
}

// spread runs count activities, some abreast, and returns their results in order.
func (r *reduction) spread(
	ctx workflow.Context, count, abreast int, input func(int) (contract.ReduceInput, string),
) ([]contract.Partial, error) {
	work, cancel := workflow.WithCancel(ctx)
	defer cancel()
	out := make([]contract.Partial, count)
	running := 0
	var failed error
	for i := 0; i < count && failed == nil && ctx.Err() == nil; i++ {
		in, summary := input(i)
		running++
		workflow.Go(work, func(ctx workflow.Context) {
			partial, err := r.runActivity(ctx, in, summary)
			out[i] = partial
			running--
			if err != nil && failed == nil {
				failed = err
			}
		})
		if err := workflow.Await(ctx, func() bool { return failed != nil || running < abreast && !r.engine.paused }); err != nil {
			break
		}
	}
	if failed != nil || ctx.Err() != nil {
		cancel()
	}
	rest, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	if err := workflow.Await(rest, func() bool { return running == 0 }); err != nil {
		return nil, err
	}
	if failed == nil {
		failed = ctx.Err()
	}
	return out, failed
}

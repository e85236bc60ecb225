package workflows

import (
	"encoding/json"
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/text"
)

// Options of Map. The zero value is right for most maps.
type Options struct {
	// Ladder names the pools to use, first choice first. Default: the pool "gpu".
	Ladder []string
	// Patience is how long a pool may lack a worker with a healthy device before the next
	// one of the ladder takes its work. Default 1 min.
	Patience time.Duration
	// Mode is persistent or fresh. Default: the task's own.
	Mode gpumux.Mode
	// Arg is what all items share; see gpumux.MapInput. Default: none.
	Arg any
	// Chunk is the number of items per activity, Window the number of activities in flight.
	// Default: learnt.
	Chunk  int
	Window int
	// Timeout bounds one item. Default: the task's own.
	Timeout time.Duration
	// Attempts is how often an item that raises is tried. Default 1.
	Attempts int
	// Backoff is the pause before another try; it doubles up to a minute. Default: none.
	Backoff time.Duration
	// FailFast makes the first failed item the error of the map. MaxFailures ends the map
	// when more items than that have failed, such as "10" or "5%". Default: any number may.
	FailFast    bool
	MaxFailures gpumux.Tolerance
	// Priority is 1 (first) to 5 (last). FairnessKey shares pools between keys, by their
	// FairnessWeight of 0.001 to 1000. Default: a key of the workflow's own, and 1.
	Priority       int
	FairnessKey    string
	FairnessWeight float64
}

// Result has the Value of an item, or its Fault. Printed is what the task printed for it.
type Result[Out any] struct {
	Value   Out
	Fault   *gpumux.Fault
	Printed string
}

// Map runs the task over the items on the pools of the ladder and returns one result per
// item, in order. It is called from workflow code and needs a gpumux worker on the pools,
// not in the caller's process.
//
// A failed item is a result with a Fault. The error is for what ends the whole map: an
// input that is not valid, a task that no worker knows, cancellation, or failed items
// with FailFast and MaxFailures; FaultOf finds the fault behind it.
//
// Items and results travel through the workflow's history, whose size Temporal limits:
// use Map up to about 10,000 items and a few MB in all, an item or result of at most 1
// MiB. For more, start gpumux.Map with a source, as MapSource does.
func Map[In, Out any](ctx workflow.Context, task string, items []In, o Options) ([]Result[Out], error) {
	raw := make([]json.RawMessage, len(items))
	for i := range items {
		encoded, err := encodeItem(items[i], "put the items in a file of the store and use MapSource")
		if err != nil {
			return nil, invalid(fmt.Errorf("item %d of task %s %w", i, task, err))
		}
		raw[i] = encoded
	}
	in := gpumux.MapInput{
		Task: task, Items: []json.RawMessage{}, Ladder: o.Ladder, Patience: gpumux.Duration(o.Patience), Mode: o.Mode, Chunk: o.Chunk, Window: o.Window,
		Timeout: gpumux.Duration(o.Timeout), Attempts: o.Attempts, Backoff: gpumux.Duration(o.Backoff), FailFast: o.FailFast,
		MaxFailures: o.MaxFailures,
		Priority:    o.Priority, FairnessKey: o.FairnessKey, FairnessWeight: o.FairnessWeight,
	}
	if o.Arg != nil {
		arg, err := json.Marshal(o.Arg)
		if err != nil {
			return nil, invalid(fmt.Errorf("the arg for task %s is not JSON: %w", task, err))
		}
		in.Arg = arg
	}
	if err := in.Validate(); err != nil {
		return nil, invalid(err)
	}
	in.Items = raw
	results := make([]Result[Out], len(items))
	e := newEngine(workflow.GetInfo(ctx).WorkflowExecution.ID, in, int64(len(items)))
	e.inline = true
	e.onResults = func(_ workflow.Context, got []gpumux.Result) error {
		for _, r := range got {
			results[r.Index] = decode[Out](r)
		}
		return nil
	}
	if err := e.run(ctx); err != nil {
		return nil, err
	}
	if e.tally.tooMany(e.tally.counts.Failed) {
		return nil, e.tooManyFailures(e.tally.counts.Failed)
	}
	return results, nil
}

// largestItem is the most bytes of one item that travels inline.
const largestItem = 1 << 20

// encodeItem is the JSON of an item. The error goes on behind the item's name; instead
// says what to do with one that is too large.
func encodeItem(item any, instead string) (json.RawMessage, error) {
	encoded, err := json.Marshal(item)
	if err != nil {
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	if len(encoded) > largestItem {
		return nil, fmt.Errorf("has %s, more than the %s that travel inline; %s", gpumux.Size(len(encoded)), gpumux.Size(largestItem), instead)
	}
	return encoded, nil
}

// decode makes a fault of a value that does not fit Out: it must not lose the others.
func decode[Out any](r gpumux.Result) Result[Out] {
	result := Result[Out]{Fault: r.Fault, Printed: r.Printed}
	if r.Fault == nil {
		if err := json.Unmarshal(r.Value, &result.Value); err != nil {
			result.Fault = &gpumux.Fault{
				Kind: gpumux.FaultTaskError, Op: "run", Message: fmt.Sprintf("the value %.200s does not fit %T: %v", r.Value, result.Value, err),
				Hint: "let the task return what the workflow expects, or change the workflow's type",
			}
		}
	}
	return result
}

// Values returns the values alone, or the first fault as an error that names its item.
func Values[Out any](results []Result[Out]) ([]Out, error) {
	values := make([]Out, len(results))
	for i, r := range results {
		if r.Fault != nil {
			return nil, faultError(fmt.Sprintf("item %d: %v", i, r.Fault), r.Fault)
		}
		values[i] = r.Value
	}
	return values, nil
}

// MapSource runs gpumux.Map as a child workflow and returns its summary: the way to map
// over a file in the store or a range, of any size. The results lie in the file that the
// summary's Output names.
func MapSource(ctx workflow.Context, in gpumux.MapInput) (gpumux.Summary, error) {
	var summary gpumux.Summary
	if err := in.Validate(); err != nil {
		return summary, invalid(err)
	}
	options := workflow.GetChildWorkflowOptions(ctx)
	options.TaskQueue = gpumux.Queue
	options.StaticSummary = text.Plain("map " + in.Task)
	options.WaitForCancellation = true
	child := workflow.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, options), gpumux.MapWorkflow, in)
	if err := child.Get(ctx, &summary); err != nil {
		return summary, unwrapFault(err)
	}
	return summary, nil
}

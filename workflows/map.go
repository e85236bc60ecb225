package workflows

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/text"
)

// Result has the Value of an item, or its Fault.
type Result[Out any] struct {
	// Index is the item's position in the input, from 0.
	Index int64
	Value Out
	Fault *gpumux.Fault `json:",omitempty"`
	// Printed is the task's output for the item.
	Printed string `json:",omitempty"`
	// Key and Item are JSON, if the map's Key and WithItem ask for them; see Decode.
	Key  json.RawMessage `json:",omitempty"`
	Item json.RawMessage `json:",omitempty"`
}

// Mapped is the outcome of a map: one result per item, in order, and the Summary, whose
// own Results are empty.
type Mapped[Out any] struct {
	Results []Result[Out]
	Summary gpumux.Summary
}

// Values returns the values alone, or the first fault as an error that names its item.
func (m Mapped[Out]) Values() ([]Out, error) {
	values := make([]Out, len(m.Results))
	for i, r := range m.Results {
		if r.Fault != nil {
			return nil, faultError(fmt.Sprintf("item %d: %s", i, textOf(r.Fault)), r.Fault)
		}
		values[i] = r.Value
	}
	return values, nil
}

// Map runs the input's task, or stages, over the items on the pools of its ladder. It is
// called from workflow code and needs a gpumux worker on the pools, not in the caller's
// process. The input has no items, source, range or output; its other options are those
// of MapSource.
//
// A failed item is a result with a Fault. The error is for what ends the whole map: an
// input that is not valid, a task that no worker knows, cancellation, or failed items
// with MaxFailures; errors.As finds the *gpumux.Fault behind it.
//
// Items and results travel through the workflow's history, whose size Temporal limits: a
// few 10 MB in all, an item or result of at most 1 MiB. A map that cannot fit is an error
// before anything runs; for more, use MapSource. Of what items print, and of tracebacks,
// it has the last 1,000 bytes.
func Map[In, Out any](ctx workflow.Context, in gpumux.MapInput, items []In) (Mapped[Out], error) {
	return runInline(ctx, in, items, func(Result[Out]) {})
}

// MapAsync is Map that does not wait.
func MapAsync[In, Out any](ctx workflow.Context, in gpumux.MapInput, items []In) Running[Out] {
	future, settable := workflow.NewFuture(ctx)
	finished := workflow.NewBufferedChannel(ctx, len(items))
	workflow.Go(ctx, func(ctx workflow.Context) {
		mapped, err := runInline(ctx, in, items, func(r Result[Out]) { finished.SendAsync(r) })
		finished.Close()
		settable.Set(mapped, err)
	})
	return Running[Out]{Future[Mapped[Out]]{future}, finished}
}

// runInline is Map. It calls finished with each result, in the order in which items
// finish.
func runInline[In, Out any](ctx workflow.Context, in gpumux.MapInput, items []In, finished func(Result[Out])) (Mapped[Out], error) {
	started := workflow.Now(ctx)
	in, err := inlineInput(in, items)
	if err != nil {
		return Mapped[Out]{}, invalid(err)
	}
	results := make([]Result[Out], len(items))
	e := newEngine(workflow.GetInfo(ctx).WorkflowExecution.ID, in, int64(len(items)))
	e.onResults = func(_ workflow.Context, got []gpumux.Result) error {
		for _, r := range got {
			result := resultOf[Out](r)
			if result.Fault != nil && r.Fault == nil {
				e.last().tally.Succeeded--
				e.last().tally.Count(result.Fault.Kind)
			}
			results[r.Index] = result
			finished(result)
		}
		return nil
	}
	done := func() int64 { return e.last().tally.Succeeded + e.failed() }
	err = e.within(ctx, started, done, func(ctx workflow.Context) error {
		e.checkLater(ctx)
		if err := e.run(ctx); err != nil {
			return err
		}
		if failed := e.failed(); e.failures.tooMany(failed) {
			return e.tooManyError(failed, e.failures.recent, "")
		}
		return nil
	})
	if err != nil {
		return Mapped[Out]{}, err
	}
	summary := e.summary()
	summary.Elapsed = gpumux.Duration(workflow.Now(ctx).Sub(started))
	return Mapped[Out]{Results: results, Summary: summary}, nil
}

// checkLater ends the map before a later stage has an item if no worker knows its task.
func (e *engine) checkLater(ctx workflow.Context) {
	for _, s := range e.stages[1:] {
		workflow.Go(ctx, func(ctx workflow.Context) {
			found, err := s.askEdition(ctx)
			s.in.Edition, e.changed = cmp.Or(s.in.Edition, found.Edition), true
			e.fail(ctx, err)
		})
	}
}

// inlineInput is the input of Map with its items. The limits of an input's own items do
// not hold for it.
func inlineInput[In any](in gpumux.MapInput, items []In) (gpumux.MapInput, error) {
	var bad gpumux.InputError
	if in.Items != nil || in.Source != "" || in.Range != nil {
		bad.Add("items", "are an argument of Map, so its input has no items, source or range; MapSource takes those")
	}
	if in.Output != "" {
		bad.Add("output", "is for the results of MapSource; those of Map are Go values")
	}
	in.Items, in.Source, in.Range, in.Output = make([]json.RawMessage, 0, len(items)), "", nil, ""
	if rest := (*gpumux.InputError)(nil); errors.As(in.Validate(), &rest) {
		bad.Problems = append(bad.Problems, rest.Problems...)
	}
	if err := bad.Err(); err != nil {
		return in, err
	}
	for i := range items {
		encoded, err := contract.EncodeItem(items[i], "put the items in a file of the store and use MapSource")
		if err != nil {
			return in, fmt.Errorf("item %d of task %s %w", i, in.Name(), err)
		}
		in.Items = append(in.Items, encoded)
	}
	if in.Key != "" && len(items) > 0 {
		if err := text.CheckField(in.Items[0], in.Key); err != nil {
			bad.Add("key", "%v", err)
		}
	}
	return in, bad.Err()
}

// resultOf makes a fault of a value that does not fit Out: it must not lose the others.
func resultOf[Out any](r gpumux.Result) Result[Out] {
	result := Result[Out]{Index: r.Index, Fault: r.Fault, Printed: r.Printed, Key: r.Key, Item: r.Item}
	if r.Fault == nil {
		result.Value, result.Fault = fit[Out](r.Value)
	}
	return result
}

// Decode is the value of JSON that a map gave, such as the Key or the Item of a Result;
// of no JSON and of null it is zero. In a workflow it stands for encoding/json, which
// workflowcheck takes for nondeterministic. errors.As finds a *gpumux.Fault in its error.
func Decode[T any](raw json.RawMessage) (value T, err error) {
	if len(raw) == 0 {
		return value, nil
	}
	value, fault := fit[T](raw)
	if fault != nil {
		return value, errorOf(fault)
	}
	return value, nil
}

// fit decodes a value, or says why it does not fit T.
//
//workflowcheck:ignore
func fit[T any](raw json.RawMessage) (value T, fault *gpumux.Fault) {
	if err := json.Unmarshal(raw, &value); err != nil {
		return value, &gpumux.Fault{
			Kind: gpumux.FaultTaskError, Op: "run", Message: fmt.Sprintf("the value %.200s does not fit %T: %v", raw, value, err),
			Hint: "let the task return what the workflow expects, or change the workflow's type",
		}
	}
	return value, nil
}

// Future is a map that runs.
type Future[Out any] struct{ raw workflow.Future }

// Get waits for the value. errors.As finds the *gpumux.Fault in the error of a map that
// failed.
func (f Future[Out]) Get(ctx workflow.Context) (out Out, err error) {
	err = f.raw.Get(ctx, &out)
	return out, err
}

// IsReady reports whether Get returns at once.
func (f Future[Out]) IsReady() bool { return f.raw.IsReady() }

// Done is for a workflow.Selector; it is ready when the value is.
func (f Future[Out]) Done() workflow.Future { return f.raw }

// Running is a map that MapAsync started. Its results can be read while it runs, and need
// not be.
type Running[Out any] struct {
	Future[Mapped[Out]]
	finished workflow.ReceiveChannel
}

// Next waits for the next result, in the order in which items finish, chunk by chunk. It
// is false after the last one, and when the map has failed.
func (r Running[Out]) Next(ctx workflow.Context) (result Result[Out], more bool) {
	more = r.finished.Receive(ctx, &result)
	return result, more
}

// AddTo makes a selector call f with each result as it comes. The call for the end has
// more false and no result: it follows the last result, and comes when the map has
// failed.
func (r Running[Out]) AddTo(selector workflow.Selector, f func(result Result[Out], more bool)) {
	selector.AddReceive(r.finished, func(c workflow.ReceiveChannel, more bool) {
		var result Result[Out]
		c.ReceiveAsync(&result) // also at the end, where a selector that waited leaves a nil
		f(result, more)
	})
}

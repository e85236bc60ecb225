package workflows

import "go.temporal.io/sdk/workflow"

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

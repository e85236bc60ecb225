package workflows

import (
	"cmp"
	"errors"
	"fmt"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/text"
)

// MapSource runs gpumux.Map as a child workflow and returns its summary: the way to map
// over a file in the store or a range, of any size. The results lie in the file that the
// summary's Output names, which Page reads; few and small ones come in the summary, too.
// The child's ID and other options are those of workflow.WithChildOptions, but for
// TaskQueue and WaitForCancellation.
func MapSource(ctx workflow.Context, in gpumux.MapInput) (gpumux.Summary, error) {
	return MapSourceAsync(ctx, in).Get(ctx)
}

// MapSourceAsync is MapSource that does not wait.
func MapSourceAsync(ctx workflow.Context, in gpumux.MapInput) Future[gpumux.Summary] {
	future, settable := workflow.NewFuture(ctx)
	options := workflow.GetChildWorkflowOptions(ctx)
	err := in.Validate()
	if id := options.WorkflowID; err == nil && id != "" {
		err = names.ID(id)
	}
	if err != nil {
		settable.SetError(invalid(err))
		return Future[gpumux.Summary]{future}
	}
	options.TaskQueue = gpumux.Queue
	options.StaticSummary = cmp.Or(options.StaticSummary, text.Plain("map "+in.Name()))
	options.WaitForCancellation = true
	bytes := envelope + len(in.Arg)
	for _, item := range in.Items {
		bytes += len(item) + 1
	}
	budget, turn := budgetOf(ctx), &waiter{}
	var child workflow.ChildWorkflowFuture
	start := func() {
		child = workflow.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, options), gpumux.MapWorkflow, in)
	}
	if budget.take(ctx, turn, bytes) {
		start()
	}
	workflow.Go(ctx, func(ctx workflow.Context) {
		if child == nil {
			if err := budget.wait(ctx, turn, bytes); err != nil {
				settable.SetError(err)
				return
			}
			start()
		}
		var summary gpumux.Summary
		err := contract.Get(ctx, child, &summary)
		budget.release()
		switch _, late := errors.Unwrap(err).(*temporal.TimeoutError); {
		case temporal.IsWorkflowExecutionAlreadyStartedError(err):
			err = invalid(fmt.Errorf("the ID %q is that of a workflow that runs, or that WorkflowIDReusePolicy protects; give another", options.WorkflowID))
		case late:
			err = errorOf(&gpumux.Fault{Kind: gpumux.FaultTimeout, Op: "run", Task: in.Name(), Message: "the map's workflow took longer than its child options allow",
				Hint: "give the input a mapTimeout instead, whose error says how many items are done; " + kept(in.Output != "")})
		}
		settable.Set(summary, unwrapFault(err))
	})
	return Future[gpumux.Summary]{future}
}

// Page reads results of a results file, such as Summary.Output, from a position on: 0
// first, then the next of the page before, which is 0 after the last one. A page has at
// most so many results (0: no limit) and gpumux.InlineBytes, and costs one read; all
// pages together travel through the workflow's history.
func Page[Out any](ctx workflow.Context, output string, from int64, limit int) (page []Result[Out], next int64, err error) {
	var read contract.Page
	in := contract.PageInput{Output: output, From: from, Limit: limit}
	err = contract.Get(ctx, workflow.ExecuteActivity(housekeeping(ctx, "read results"), contract.ReadPage, in), &read)
	for _, r := range read.Results {
		page = append(page, resultOf[Out](r))
	}
	return page, read.Next, unwrapFault(err)
}

package fleet

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
)

// HandOn ends the attempts of dead workers, so that others take their work at once, and
// returns how many. Dead reports whether the worker of an identity, host/pid, is gone.
func (f *Fleet) HandOn(ctx context.Context, dead func(identity string) bool) (int, error) {
	handed := 0
	for w, err := range f.Workflows(ctx, "ExecutionStatus = 'Running'") {
		if err != nil {
			return handed, fmt.Errorf("list running workflows: %w", err)
		}
		n, err := f.handOn(ctx, w.GetExecution().GetWorkflowId(), dead)
		if handed += n; err != nil {
			return handed, err
		}
	}
	return handed, nil
}

func (f *Fleet) handOn(ctx context.Context, id string, dead func(string) bool) (handed int, err error) {
	d, err := f.Client.DescribeWorkflowExecution(ctx, id, "")
	if errors.As(err, new(*serviceerror.NotFound)) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("describe workflow %s: %w", id, err)
	}
	for _, a := range d.GetPendingActivities() {
		if !strings.HasPrefix(a.GetActivityType().GetName(), "gpumux.") || a.GetState() != enumspb.PENDING_ACTIVITY_STATE_STARTED ||
			!dead(a.GetLastWorkerIdentity()) {
			continue
		}
		lost := gpumux.Fault{Kind: gpumux.FaultCrash, Op: "run", Blameless: true,
			Message: "the worker " + a.GetLastWorkerIdentity() + " is gone; its work goes on elsewhere"}
		runID := d.GetWorkflowExecutionInfo().GetExecution().GetRunId()
		err := f.Client.CompleteActivityByID(ctx, f.namespace(), id, runID, a.GetActivityId(), nil,
			temporal.NewApplicationErrorWithOptions(lost.Error(), string(lost.Kind), temporal.ApplicationErrorOptions{Details: []any{lost}}))
		switch {
		case errors.As(err, new(*serviceerror.NotFound)): // it has just ended
		case err != nil:
			return handed, fmt.Errorf("hand on activity %s of %s: %w", a.GetActivityId(), id, err)
		default:
			handed++
		}
	}
	return handed, nil
}

// Workflows yields what a query finds.
func (f *Fleet) Workflows(ctx context.Context, query string) iter.Seq2[*workflowpb.WorkflowExecutionInfo, error] {
	return func(yield func(*workflowpb.WorkflowExecutionInfo, error) bool) {
		request := &workflowservice.ListWorkflowExecutionsRequest{Namespace: f.namespace(), PageSize: 100, Query: query}
		for {
			page, err := f.Client.ListWorkflow(ctx, request)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, info := range page.GetExecutions() {
				if !yield(info, nil) {
					return
				}
			}
			if request.NextPageToken = page.GetNextPageToken(); len(request.NextPageToken) == 0 {
				return
			}
		}
	}
}

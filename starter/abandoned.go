package starter

import (
	"context"
	"errors"
	"fmt"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
)

// HandOn ends the attempts at chunks, merges and the like whose worker is known to be dead, so that others take them at once instead
// of after the heartbeat's timeout. Dead is asked with the identity of a worker, host/pid. It returns how many it handed on.
func (s *Starter) HandOn(ctx context.Context, dead func(identity string) bool) (int, error) {
	handed := 0
	request := &workflowservice.ListWorkflowExecutionsRequest{Namespace: s.namespace(), Query: "ExecutionStatus = 'Running'"}
	for {
		page, err := s.Client.ListWorkflow(ctx, request)
		if err != nil {
			return handed, fmt.Errorf("list running workflows: %w", err)
		}
		for _, w := range page.GetExecutions() {
			n, err := s.handOn(ctx, w.GetExecution().GetWorkflowId(), dead)
			if handed += n; err != nil {
				return handed, err
			}
		}
		if request.NextPageToken = page.GetNextPageToken(); len(request.NextPageToken) == 0 {
			return handed, nil
		}
	}
}

func (s *Starter) handOn(ctx context.Context, id string, dead func(string) bool) (handed int, err error) {
	var gone *serviceerror.NotFound
	d, err := s.Client.DescribeWorkflowExecution(ctx, id, "")
	if errors.As(err, &gone) {
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
		lost := gpumux.Fault{Kind: gpumux.Crash, Op: "run", Message: "the worker " + a.GetLastWorkerIdentity() + " is gone; its work goes on elsewhere", Blameless: true}
		err := s.Client.CompleteActivityByID(ctx, s.namespace(), id, d.GetWorkflowExecutionInfo().GetExecution().GetRunId(), a.GetActivityId(), nil,
			temporal.NewApplicationErrorWithOptions(lost.Error(), string(lost.Kind), temporal.ApplicationErrorOptions{Details: []any{lost}}))
		switch {
		case errors.As(err, &gone): // it has just ended
		case err != nil:
			return handed, fmt.Errorf("hand on activity %s of %s: %w", a.GetActivityId(), id, err)
		default:
			handed++
		}
	}
	return handed, nil
}

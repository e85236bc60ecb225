package starter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter/connect"
	"github.com/gpumux/gpumux/starter/fleet"
	"github.com/gpumux/gpumux/starter/prune"
)

// Prune deletes from the workers' store what maps have left there that ended before a time: folders below maps/ and inputs below
// sources/. It keeps what a running or a younger map, or a schedule, names as its results or its input. A map that the server does not know
// has ended when something was last written to its folder. When it cannot be sure of one map it deletes nothing.
func (s *Starter) Prune(ctx context.Context, o prune.Options) ([]prune.Group, error) {
	st, err := s.store(ctx)
	if err != nil {
		return nil, err
	}
	return prune.Run(ctx, st, o, func(used *prune.Used) error { return s.findUsed(ctx, o.Before, used) })
}

// findUsed notes what running maps, those that ended since, and schedules name.
func (s *Starter) findUsed(ctx context.Context, since time.Time, used *prune.Used) error {
	var live []*run
	for r, err := range s.newestRuns(ctx, "") {
		switch {
		case err != nil:
			return err
		case r.Unread != nil:
			return fmt.Errorf("look up map %s: %w", r.ID, r.Unread)
		case r.Closed.IsZero() || !r.Closed.Before(since):
			live = append(live, r)
		}
	}
	const most = 8
	errs := make([]error, len(live))
	fleet.Abreast(len(live), most, func(i int) {
		first, in, err := s.current(ctx, live[i])
		errs[i] = err
		used.AddRun(first)
		used.Add(live[i].Memo.Output, in.Output, in.Source)
	})
	return cmp.Or(errors.Join(errs...), s.eachScheduled(ctx, func(in gpumux.MapInput) { used.Add(in.Output, in.Source) }))
}

// current reads from the history of a run which run of its map was the first, and its own input: the server keeps it for longer than that
// of the first run.
func (s *Starter) current(ctx context.Context, r *run) (first string, in gpumux.MapInput, err error) {
	page, err := s.Client.WorkflowService().GetWorkflowExecutionHistory(ctx, &workflowservice.GetWorkflowExecutionHistoryRequest{
		Namespace: s.namespace(), Execution: &commonpb.WorkflowExecution{WorkflowId: r.ID, RunId: r.RunID},
		MaximumPageSize: 1, HistoryEventFilterType: enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT,
	})
	if errors.As(err, new(*serviceerror.NotFound)) {
		return "", in, nil // it has gone since it was listed, so it has ended
	}
	if err == nil && len(page.GetHistory().GetEvents()) == 0 {
		err = errors.New("its history is empty")
	}
	if err != nil {
		return "", in, fmt.Errorf("read the input of map %s: %w", r.ID, err)
	}
	started := page.GetHistory().GetEvents()[0].GetWorkflowExecutionStartedEventAttributes()
	var continued struct {
		Input *gpumux.MapInput `json:"input"`
	}
	first = started.GetFirstExecutionRunId()
	if err := s.converter().FromPayloads(started.GetInput(), &continued); err == nil && continued.Input != nil {
		return first, *continued.Input, nil
	}
	if err := s.converter().FromPayloads(started.GetInput(), &in); err != nil {
		return first, in, fmt.Errorf("read the input of map %s: %w", r.ID, connect.WithKeysHint(err))
	}
	return first, in, nil
}

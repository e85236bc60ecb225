package starter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"golang.org/x/sync/errgroup"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/names"
)

// Status is how a run of a map stands.
type Status string

const (
	Running    Status = "running"
	Completed  Status = "completed"
	Failed     Status = "failed"
	Canceled   Status = "canceled"
	Terminated Status = "terminated"
	TimedOut   Status = "timed out"
)

var statuses = map[enumspb.WorkflowExecutionStatus]Status{
	enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING:          Running,
	enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED:           Running,
	enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED:        Completed,
	enumspb.WORKFLOW_EXECUTION_STATUS_FAILED:           Failed,
	enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED:         Canceled,
	enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED:       Terminated,
	enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:        TimedOut,
	enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW: Running,
}

const memoKey = "gpumux"

// memo is the state that a run leaves to the next one under the same ID.
type memo struct {
	Fingerprint string `json:"fingerprint"`
	Task        string `json:"task"`
	// Items is their number, or -1 when only the workers can tell.
	Items int64 `json:"items"`
	// Input says in words where the items came from.
	Input string `json:"input,omitempty"`
	// Output is the key of the results file; empty for a map without a folder in the store.
	Output string `json:"output,omitempty"`
	Store  string `json:"store,omitempty"`
	// Edition is that of the task's code when the map was started first.
	Edition string `json:"edition,omitempty"`
}

// run is one workflow run of a map, with what a list shows of it.
type run struct {
	Listed
	FirstRunID string
	Memo       memo
	// Unread says that the memo is encoded in a way that is not known here.
	Unread   error
	Pending  []*workflowpb.PendingActivityInfo
	Children []*workflowpb.PendingChildExecutionInfo
}

func (s *Starter) describe(ctx context.Context, id string) (*run, error) {
	if err := names.ID(id); err != nil {
		return nil, &gpumux.InputError{Problems: []gpumux.Problem{{Field: "id", Message: err.Error()}}}
	}
	answer, err := s.Client.DescribeWorkflowExecution(ctx, id, "")
	if errors.As(err, new(*serviceerror.NotFound)) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up map %s: %w", id, err)
	}
	info := answer.GetWorkflowExecutionInfo()
	if name := info.GetType().GetName(); name != gpumux.MapWorkflow {
		return nil, &NotMapError{ID: id, Type: name}
	}
	r := s.runOf(info)
	r.Pending, r.Children = answer.GetPendingActivities(), answer.GetPendingChildren()
	return r, nil
}

func (s *Starter) runOf(info *workflowpb.WorkflowExecutionInfo) *run {
	r := &run{FirstRunID: info.GetFirstRunId(), Listed: Listed{
		ID: info.GetExecution().GetWorkflowId(), RunID: info.GetExecution().GetRunId(), Status: statuses[info.GetStatus()],
		Started: info.GetStartTime().AsTime(), Items: -1, Succeeded: -1, Failed: -1,
	}}
	if info.GetCloseTime() != nil {
		r.Closed = info.GetCloseTime().AsTime()
	}
	if payload := info.GetMemo().GetFields()[memoKey]; payload != nil {
		if err := s.converter().FromPayload(payload, &r.Memo); fleet.Sealed(err) { // one that does not fit counts as none
			r.Unread = fleet.WithKeysHint(err)
		}
	}
	if r.Task, r.Input = r.Memo.Task, r.Memo.Input; r.Memo.Fingerprint != "" {
		r.Items = r.Memo.Items
	}
	return r
}

func (s *Starter) inputOf(ctx context.Context, r *run) (gpumux.MapInput, error) {
	var in gpumux.MapInput
	began, err := s.began(ctx, r.ID, r.FirstRunID)
	if err != nil {
		return in, fmt.Errorf("%w; when the server no longer keeps its first run, start the map anew", err)
	}
	if err := s.converter().FromPayloads(began.GetInput(), &in); err != nil {
		return in, fmt.Errorf("read the input of map %s: %w", r.ID, fleet.WithKeysHint(err))
	}
	return in, nil
}

func (s *Starter) began(ctx context.Context, id, runID string) (*historypb.WorkflowExecutionStartedEventAttributes, error) {
	page, err := s.Client.WorkflowService().GetWorkflowExecutionHistory(ctx, &workflowservice.GetWorkflowExecutionHistoryRequest{
		Namespace: s.namespace(), Execution: &commonpb.WorkflowExecution{WorkflowId: id, RunId: runID}, MaximumPageSize: 1,
	})
	if err == nil && len(page.GetHistory().GetEvents()) == 0 {
		err = errors.New("its history is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("read the input of map %s: %w", id, err)
	}
	return page.GetHistory().GetEvents()[0].GetWorkflowExecutionStartedEventAttributes(), nil
}

func (s *Starter) converter() converter.DataConverter {
	return cmp.Or(s.Converter, converter.GetDefaultDataConverter())
}

// askAtOnce is how many maps are asked at a time.
const askAtOnce = 8

// ListOptions narrow a list of maps.
type ListOptions struct {
	// Limit is the most maps to return. Default 20.
	Limit int
	// Running leaves out those that are over.
	Running bool
	// Counts asks each map how far it is, at a call per map.
	Counts bool
}

// Listed is the newest run of one map.
type Listed struct {
	ID      string    `json:"id"`
	RunID   string    `json:"runId"`
	Task    string    `json:"task"`
	Status  Status    `json:"status"`
	Input   string    `json:"input,omitempty"`
	Started time.Time `json:"started"`
	// Closed is zero while the map runs.
	Closed time.Time `json:"closed,omitzero"`
	// Items, Succeeded and Failed are -1 when they are not known.
	Items     int64 `json:"items"`
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
	// Paused is a running map that hands out nothing, as far as it could be asked.
	Paused bool `json:"paused,omitempty"`
	// Recent are the newest failures of a running map that could be asked, at most five.
	Recent []gpumux.Result `json:"recent,omitempty"`
}

// List returns maps, the newest first, one entry per ID.
func (s *Starter) List(ctx context.Context, o ListOptions) ([]Listed, error) {
	limit := cmp.Or(max(o.Limit, 0), 20)
	filter := ""
	if o.Running {
		filter = "ExecutionStatus = 'Running'"
	}
	var maps []Listed
	var runs []*run
	for r, err := range s.newestRuns(ctx, filter) {
		if err != nil {
			return nil, err
		}
		runs, maps = append(runs, r), append(maps, r.Listed)
		if len(maps) == limit {
			break
		}
	}
	if o.Counts {
		s.fillCounts(ctx, maps, runs)
	}
	return maps, nil
}

func (s *Starter) newestRuns(ctx context.Context, filter string) iter.Seq2[*run, error] {
	return func(yield func(*run, error) bool) {
		seen := map[string]bool{}
		query := "WorkflowType = " + strconv.Quote(gpumux.MapWorkflow) + " AND " + cmp.Or(filter, "ExecutionStatus != 'ContinuedAsNew'")
		for info, err := range s.Fleet().Workflows(ctx, query) {
			if err != nil {
				yield(nil, fmt.Errorf("list maps: %w", err))
				return
			}
			r := s.runOf(info)
			if !seen[r.ID] && !yield(r, nil) {
				return
			}
			seen[r.ID] = true
		}
	}
}

// fillCounts reads summaries of completed maps and asks running ones.
func (s *Starter) fillCounts(ctx context.Context, maps []Listed, runs []*run) {
	rung, err := s.Fleet().Rung(ctx, gpumux.Queue)
	canAsk := err == nil && rung.Served()
	var asking errgroup.Group
	asking.SetLimit(askAtOnce)
	for i := range maps {
		asking.Go(func() error {
			s.handle(runs[i], Found).fillCount(ctx, &maps[i], canAsk)
			return nil
		})
	}
	_ = asking.Wait() // what cannot be asked stays unknown
}

func (h *Handle) fillCount(ctx context.Context, l *Listed, canAsk bool) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if l.Status == Completed {
		if sum, err := h.Wait(ctx); err == nil {
			l.Task, l.Items, l.Succeeded, l.Failed = sum.Task, sum.Items, sum.Succeeded, sum.Failed
		}
	} else if l.Status == Running && canAsk {
		if p, err := h.Progress(ctx); err == nil {
			l.Task, l.Items, l.Succeeded, l.Failed, l.Paused, l.Recent = p.Task, p.Items, p.Succeeded, p.Failed, p.Paused, p.Recent
		}
	}
}

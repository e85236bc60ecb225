package starter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/starter/fleet"
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

// memoKey is where a run keeps its memo.
const memoKey = "gpumux"

// memo is what a run keeps for the next one under the same ID.
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

type run struct {
	ID, RunID, FirstRunID string
	Status                Status
	Started, Closed       time.Time
	Memo                  memo
	// Unread says that the memo is encoded in a way that is not known here.
	Unread   error
	Pending  []*workflowpb.PendingActivityInfo
	Children []*workflowpb.PendingChildExecutionInfo
}

// describe is the newest run under an ID, or nil when there is none.
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
	r := &run{
		ID: info.GetExecution().GetWorkflowId(), RunID: info.GetExecution().GetRunId(), FirstRunID: info.GetFirstRunId(),
		Status: statuses[info.GetStatus()], Started: info.GetStartTime().AsTime(),
	}
	if info.GetCloseTime() != nil {
		r.Closed = info.GetCloseTime().AsTime()
	}
	if payload := info.GetMemo().GetFields()[memoKey]; payload != nil {
		if err := s.converter().FromPayload(payload, &r.Memo); fleet.Sealed(err) { // one that does not fit counts as none
			r.Unread = fleet.WithKeysHint(err)
		}
	}
	return r
}

// given reads the input that a run was started with.
func (s *Starter) given(ctx context.Context, r *run) (gpumux.MapInput, error) {
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

package starter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/codec"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/names"
)

// Status is how a run of a map stands.
type Status string

const (
	StatusRunning    Status = "running"
	StatusCompleted  Status = "completed"
	StatusFailed     Status = "failed"
	StatusCanceled   Status = "canceled"
	StatusTerminated Status = "terminated"
	StatusTimedOut   Status = "timed out"
)

var statuses = map[enumspb.WorkflowExecutionStatus]Status{
	enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING:          StatusRunning,
	enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED:           StatusRunning,
	enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED:        StatusCompleted,
	enumspb.WORKFLOW_EXECUTION_STATUS_FAILED:           StatusFailed,
	enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED:         StatusCanceled,
	enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED:       StatusTerminated,
	enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT:        StatusTimedOut,
	enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW: StatusRunning,
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
	// Edition is the edition of the task's code when the map was started first.
	Edition string `json:"edition,omitempty"`
}

// run is one workflow run of a map, with what a list shows of it.
type run struct {
	MapInfo
	FirstRunID string
	Memo       memo
	// Unread says that the memo's codec is missing here, or failed.
	Unread   error
	Pending  []*workflowpb.PendingActivityInfo
	Children []*workflowpb.PendingChildExecutionInfo
}

type registry struct {
	fleet *fleet.Fleet
	data  converter.DataConverter
}

// describe returns the newest run under an ID, or nil.
func (r registry) describe(ctx context.Context, id string) (*run, error) {
	if err := names.ID(id); err != nil {
		return nil, &gpumux.InputError{Problems: []gpumux.Problem{{Field: "id", Message: err.Error()}}}
	}
	answer, err := r.fleet.Client.DescribeWorkflowExecution(ctx, id, "")
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
	found := r.read(info)
	found.Pending, found.Children = answer.GetPendingActivities(), answer.GetPendingChildren()
	return found, nil
}

func (r registry) read(info *workflowpb.WorkflowExecutionInfo) *run {
	one := &run{FirstRunID: info.GetFirstRunId(), MapInfo: MapInfo{
		ID: info.GetExecution().GetWorkflowId(), RunID: info.GetExecution().GetRunId(), Status: statuses[info.GetStatus()],
		Started: info.GetStartTime().AsTime(), Items: -1, Succeeded: -1, Failed: -1,
	}}
	if queue := info.GetTaskQueue(); queue != gpumux.Queue {
		one.Queue = queue
	}
	if info.GetCloseTime() != nil {
		one.Closed = info.GetCloseTime().AsTime()
	}
	if note := info.GetMemo().GetFields()[memoKey]; note != nil {
		err := r.data.FromPayload(note, &one.Memo)
		if err != nil && (fleet.Encoded(err) || !contract.Unfit(err)) { // one that does not fit counts as none
			one.Unread = fleet.WithCodecHint(err)
		}
	}
	if one.Task, one.Input = one.Memo.Task, one.Memo.Input; one.Memo.Fingerprint != "" {
		one.Items = one.Memo.Items
	}
	return one
}

// input is the input of a map's first run.
func (r registry) input(ctx context.Context, run *run) (gpumux.MapInput, error) {
	var in gpumux.MapInput
	began, err := r.began(ctx, run.ID, run.FirstRunID)
	if err != nil {
		return in, fmt.Errorf("%w; when the server no longer keeps its first run, start the map anew", err)
	}
	if err := r.data.FromPayloads(began.GetInput(), &in); err != nil {
		return in, fmt.Errorf("read the input of map %s: %w", run.ID, fleet.WithCodecHint(err))
	}
	return in, nil
}

func (r registry) began(ctx context.Context, id, runID string) (*historypb.WorkflowExecutionStartedEventAttributes, error) {
	page, err := r.fleet.Client.WorkflowService().GetWorkflowExecutionHistory(ctx, &workflowservice.GetWorkflowExecutionHistoryRequest{
		Namespace: r.fleet.Namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: id, RunId: runID}, MaximumPageSize: 1,
	})
	if err == nil && len(page.GetHistory().GetEvents()) == 0 {
		err = errors.New("its history is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("read the input of map %s: %w", id, err)
	}
	return page.GetHistory().GetEvents()[0].GetWorkflowExecutionStartedEventAttributes(), nil
}

func (r registry) firstPending(ctx context.Context, run *run) (first []Pending) {
	for p := range r.pending(ctx, run) {
		if first = append(first, p); len(first) == MaxPending {
			break
		}
	}
	return first
}

// pending yields what a run has in flight, and its segments after that.
func (r registry) pending(ctx context.Context, run *run) iter.Seq[Pending] {
	return func(yield func(Pending) bool) {
		activities := run.Pending
		for i := 0; ; i++ {
			for _, a := range activities {
				watches := a.GetActivityType().GetName() == contract.WatchPool
				if !watches && !yield(pendingOf(a, r.data)) {
					return
				}
			}
			if i == min(len(run.Children), MaxPending) {
				return
			}
			// A segment that has just ended has nothing in flight.
			segment, _ := r.fleet.Client.DescribeWorkflowExecution(ctx, run.Children[i].GetWorkflowId(), "")
			activities = segment.GetPendingActivities()
		}
	}
}

var pendingStates = map[enumspb.PendingActivityState]string{
	enumspb.PENDING_ACTIVITY_STATE_SCHEDULED:        "scheduled",
	enumspb.PENDING_ACTIVITY_STATE_STARTED:          "started",
	enumspb.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED: "cancel requested",
	enumspb.PENDING_ACTIVITY_STATE_PAUSED:           "paused",
	enumspb.PENDING_ACTIVITY_STATE_PAUSE_REQUESTED:  "paused",
}

func pendingOf(a *workflowpb.PendingActivityInfo, data converter.DataConverter) Pending {
	p := Pending{Activity: a.GetActivityType().GetName(), ID: a.GetActivityId(), State: pendingStates[a.GetState()],
		Attempt: int(a.GetAttempt()), Worker: a.GetLastWorkerIdentity()}
	if next := a.GetNextAttemptScheduleTime(); next != nil {
		p.Next = next.AsTime()
	}
	if last := a.GetLastFailure(); last != nil {
		fault := gpumux.Fault{Message: last.GetMessage()}
		if application, ok := errors.AsType[*temporal.ApplicationError](codec.Failures(data).FailureToError(last)); ok {
			fault = faultOf(application)
		}
		p.Fault = &fault
	}
	var beat struct {
		Waiting  string `json:"waiting"`
		Finished int64  `json:"finished"`
	}
	if data.FromPayloads(a.GetHeartbeatDetails(), &beat) == nil {
		p.Waiting, p.Finished = beat.Waiting, beat.Finished
	}
	return p
}

// NotMapError says that an ID belongs to a workflow of another type.
type NotMapError struct{ ID, Type string }

func (e *NotMapError) Error() string {
	return fmt.Sprintf("%q is a workflow of type %s, no map (%s); give another ID", e.ID, e.Type, gpumux.MapWorkflow)
}

// NotFoundError says that there is no such map.
type NotFoundError struct {
	ID    string
	Known []string
}

func (e *NotFoundError) Error() string {
	if len(e.Known) == 0 {
		return fmt.Sprintf("there is no map %q, nor any other; start one with `gpumux map`", e.ID)
	}
	return fmt.Sprintf("there is no map %q; the newest are %s; `gpumux ls` lists all", e.ID, strings.Join(e.Known, ", "))
}

// latest is the newest run under an ID, or nil; one of other items is a *RefusedError.
func (r registry) latest(ctx context.Context, id, fingerprint string) (*run, error) {
	last, err := r.describe(ctx, id)
	if last != nil && last.Unread != nil {
		return nil, fmt.Errorf("look up map %s: %w", id, last.Unread)
	}
	if last != nil && last.Memo.Fingerprint != "" && last.Memo.Fingerprint != fingerprint {
		over := cmp.Or(last.Memo.Input, "other items")
		if last.Memo.Items >= 0 {
			over = fmt.Sprintf("%d items (%s)", last.Memo.Items, over)
		}
		return nil, refused(id, "map ID %q is taken: it names a map of task %s over %s, %s; give another ID, or that task and input",
			id, last.Memo.Task, over, last.Status)
	}
	return last, err
}

func (r registry) newest(ctx context.Context, fingerprint string) (string, error) {
	for one, err := range r.newestRuns(ctx, "") {
		if err != nil {
			return "", err
		}
		if one.Memo.Fingerprint == fingerprint {
			return one.ID, nil
		}
	}
	return "", nil
}

// newestRuns yields the newest run of each map, the newest map first.
func (r registry) newestRuns(ctx context.Context, filter string) iter.Seq2[*run, error] {
	return func(yield func(*run, error) bool) {
		seen := map[string]bool{}
		query := "WorkflowType = " + strconv.Quote(gpumux.MapWorkflow) + " AND " + cmp.Or(filter, "ExecutionStatus != 'ContinuedAsNew'")
		for info, err := range r.fleet.Workflows(ctx, query) {
			if err != nil {
				yield(nil, fmt.Errorf("list maps: %w", err))
				return
			}
			one := r.read(info)
			if !seen[one.ID] && !yield(one, nil) {
				return
			}
			seen[one.ID] = true
		}
	}
}

package starter

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/codec"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/fleet"
)

// Detail describes one map.
type Detail struct {
	Listed
	// Output and Store say where the results lie, or will.
	Output string `json:"output,omitempty"`
	Store  string `json:"store,omitempty"`
	// Progress is of a running map, Summary of a completed one, Fault of one that failed.
	Progress *gpumux.Progress `json:"progress,omitempty"`
	Summary  *gpumux.Summary  `json:"summary,omitempty"`
	Fault    *gpumux.Fault    `json:"fault,omitempty"`
	// Pending are at most MaxPending chunks in flight.
	Pending []Pending `json:"pending,omitempty"`
	// Waits names the quotas that chunks among Pending wait for.
	Waits []string `json:"waits,omitempty"`
	// Running are the items that run, the longest first.
	Running []fleet.RunningItem `json:"running,omitempty"`
	// Rungs says who serves the map's queues; empty for a map that is over.
	Rungs []fleet.Rung `json:"rungs,omitempty"`
	// Sick says why no device may take the map's work, where no worker has a healthy one.
	Sick []string `json:"sick,omitempty"`
	// Notices of the workers say what changes what the map gets.
	Notices []string `json:"notices,omitempty"`
}

// MaxPending is the most chunks that a Detail holds.
const MaxPending = 50

// Pending is a chunk in flight.
type Pending struct {
	// Activity is its type, ID its number in the workflow.
	Activity string `json:"activity"`
	ID       string `json:"id"`
	// State is "scheduled", "started", "paused" or "cancel requested".
	State   string    `json:"state"`
	Attempt int       `json:"attempt"`
	Worker  string    `json:"worker,omitempty"`
	Next    time.Time `json:"next,omitzero"`
	// Fault is why its last attempt ended.
	Fault *gpumux.Fault `json:"fault,omitempty"`
	// Waiting says why it does not move, such as a store that is full or away.
	Waiting string `json:"waiting,omitempty"`
	// OverQuota: it waits for the quota of its fairness key.
	OverQuota bool `json:"overQuota,omitempty"`
}

// Show describes the newest run of a map, as far as can be found out.
func (s *Starter) Show(ctx context.Context, id string) (*Detail, error) {
	h, err := s.Open(ctx, id)
	if err != nil {
		return nil, err
	}
	r := h.run
	d := &Detail{Listed: r.Listed, Output: r.Memo.Output, Store: r.Memo.Store}
	if r.Status == Running {
		return d, s.showRunning(ctx, h, d)
	}
	summary, err := h.Wait(ctx)
	var ended *EndedError
	switch {
	case err == nil:
		d.Summary, d.Items, d.Task = &summary, summary.Items, summary.Task
		d.Succeeded, d.Failed = summary.Succeeded, summary.Failed
		if summary.Output != "" {
			d.Output = summary.Output
		}
	case !errors.As(err, &ended):
		return nil, fmt.Errorf("show map %s: %w", id, err)
	case ended.Status == Failed:
		d.Fault = &ended.Fault
	}
	return d, nil
}

func (s *Starter) showRunning(ctx context.Context, h *Handle, d *Detail) error {
	in, err := s.inputOf(ctx, h.run)
	if err == nil {
		d.Task = in.Task
		if d.Rungs, err = s.Fleet().Serving(ctx, in.Rungs()); err != nil {
			return err
		}
	}
	if len(d.Rungs) == 0 || d.Rungs[0].Served() {
		asking, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		if p, err := h.Progress(asking); err == nil {
			d.Progress, d.Items, d.Succeeded, d.Failed = &p, p.Items, p.Succeeded, p.Failed
		}
	}
	d.Pending = s.firstPending(ctx, h.run)
	for _, p := range d.Pending {
		if p.OverQuota && !slices.Contains(d.Waits, p.Waiting) {
			d.Waits = append(d.Waits, p.Waiting)
		}
	}
	workers := busy(d.Pending)
	offers := s.Fleet().Offers(ctx, workers)
	if len(workers) == 0 && len(d.Pending) > 0 {
		offers = s.offers(ctx)
		d.Sick = fleet.Sick(offers, in.Rungs())
	}
	d.Running = fleet.Running(offers, d.ID)
	for _, offer := range offers {
		for _, text := range offer.Notices {
			d.Notices = append(d.Notices, offer.Host+": "+text)
		}
	}
	return nil
}

// offers are what the workers that answer offer.
func (s *Starter) offers(ctx context.Context) (offers []gpumux.Describe) {
	workers, _ := s.Fleet().Workers(ctx) // without any, nobody has work
	for _, w := range workers {
		if w.Offer != nil {
			offers = append(offers, *w.Offer)
		}
	}
	return offers
}

func (s *Starter) firstPending(ctx context.Context, r *run) (first []Pending) {
	for p := range s.pending(ctx, r) {
		if first = append(first, p); len(first) == MaxPending {
			break
		}
	}
	return first
}

func busy(pending []Pending) (workers []string) {
	for _, p := range pending {
		if p.Activity == contract.RunChunk && p.State == "started" && p.Worker != "" && !slices.Contains(workers, p.Worker) {
			workers = append(workers, p.Worker)
		}
	}
	return workers
}

// pending yields what a run has in flight, and its segments after that.
func (s *Starter) pending(ctx context.Context, r *run) iter.Seq[Pending] {
	return func(yield func(Pending) bool) {
		activities := r.Pending
		for i := 0; ; i++ {
			for _, a := range activities {
				watches := a.GetActivityType().GetName() == contract.WatchPool
				if !watches && !yield(pendingOf(a, s.converter())) {
					return
				}
			}
			if i == min(len(r.Children), MaxPending) {
				return
			}
			// A segment that has just ended has nothing in flight.
			segment, _ := s.Client.DescribeWorkflowExecution(ctx, r.Children[i].GetWorkflowId(), "")
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
		var application *temporal.ApplicationError
		if errors.As(codec.Failures(data).FailureToError(last), &application) {
			fault = faultOf(application)
		}
		p.Fault = &fault
	}
	var told struct {
		Waiting string `json:"waiting"`
	}
	if data.FromPayloads(a.GetHeartbeatDetails(), &told) == nil {
		p.Waiting = told.Waiting
	}
	if p.Fault != nil && p.Fault.Op == contract.OpQuota { // nothing failed
		if a.GetState() == enumspb.PENDING_ACTIVITY_STATE_SCHEDULED {
			p.Waiting, p.OverQuota = p.Fault.Message, true
		}
		p.Fault = nil
	}
	return p
}

const stuckAfter = 3

// Retries is the work that a running map tries again.
type Retries struct {
	// Chunks is how many chunks in flight are not in their first attempt.
	Chunks int64
	// Stuck are activities on the store that have failed at least three times and hold the
	// map up. Fault is why the last attempt failed.
	Stuck []Pending
	// Quota names a quota that chunks wait for.
	Quota string
	// Idle: chunks wait, and none has begun.
	Idle bool
}

// Retries looks at what the map has in flight.
func (h *Handle) Retries(ctx context.Context) (Retries, error) {
	var found Retries
	r, err := h.starter.describe(ctx, h.ID)
	if err != nil || r == nil {
		return found, err
	}
	begun, waiting := false, false
	for p := range h.starter.pending(ctx, r) {
		if p.Activity == contract.RunChunk {
			begun, waiting = begun || p.State == "started", true
		}
		switch {
		case p.OverQuota:
			found.Quota = strings.TrimPrefix(p.Waiting, contract.WaitsFor)
		case p.Activity == contract.RunChunk && p.Fault != nil && p.Fault.Kind == gpumux.Canceled: // of its worker, not of an item
		case p.Activity == contract.RunChunk && p.Attempt > 1:
			found.Chunks++
		case p.Activity != contract.RunChunk && p.Fault != nil && p.Attempt > stuckAfter:
			found.Stuck = append(found.Stuck, p)
		}
	}
	found.Idle = waiting && !begun
	return found, nil
}

// Sick says why no device may take the map's work, where no worker has a healthy one.
func (h *Handle) Sick(ctx context.Context) ([]string, error) {
	in, err := h.Input(ctx)
	if err != nil {
		return nil, err
	}
	return fleet.Sick(h.starter.offers(ctx), in.Rungs()), nil
}

// NotMapError says that an ID is that of a workflow of another type.
type NotMapError struct{ ID, Type string }

// Error says what to do.
func (e *NotMapError) Error() string {
	return fmt.Sprintf("%q is a workflow of type %s, no map; give another ID", e.ID, e.Type)
}

// Leasing is a workflow of somebody's own and the leases that it has.
type Leasing struct {
	ID      string    `json:"id"`
	Type    string    `json:"type"`
	Status  Status    `json:"status"`
	Started time.Time `json:"started"`
	Leases  []Lease   `json:"leases"`
}

// Lease is a slot that a workflow holds; without a slot it waits for one.
type Lease = contract.Seat

// Leases returns a workflow's leases, some seconds old.
func (s *Starter) Leases(ctx context.Context, id string) (*Leasing, error) {
	answer, err := s.Client.DescribeWorkflowExecution(ctx, id, "")
	if errors.As(err, new(*serviceerror.NotFound)) {
		return nil, &NotFoundError{ID: id}
	}
	if err != nil {
		return nil, fmt.Errorf("look up workflow %s: %w", id, err)
	}
	info := answer.GetWorkflowExecutionInfo()
	l := &Leasing{ID: id, Type: info.GetType().GetName(), Status: statuses[info.GetStatus()], Started: info.GetStartTime().AsTime(), Leases: []Lease{}}
	for _, a := range answer.GetPendingActivities() {
		if a.GetActivityType().GetName() != contract.HoldSlot {
			continue
		}
		var at Lease
		if a.GetState() != enumspb.PENDING_ACTIVITY_STATE_SCHEDULED {
			// Without the key of an encrypted heartbeat the rest still counts.
			err := s.converter().FromPayloads(a.GetHeartbeatDetails(), &at)
			if err != nil || at.Slot != "" { // else it waits at the worker for one
				at.Worker = a.GetLastWorkerIdentity()
			}
		}
		l.Leases = append(l.Leases, at)
	}
	return l, nil
}

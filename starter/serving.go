package starter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workerpb "go.temporal.io/api/worker/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// Rung is a queue and who serves it.
type Rung struct {
	// Name is the pool or pinned device as the ladder has it, or "workflows" for the queue of workflows and light activities.
	Name  string `json:"name"`
	Queue string `json:"queue"`
	// Pollers asked for work lately; Workers are known to the server by their heartbeats, and may be too busy to ask.
	Pollers int `json:"pollers"`
	Workers int `json:"workers"`
}

// Served reports whether somebody takes work from the queue.
func (r Rung) Served() bool { return r.Pollers+r.Workers > 0 }

// Serving tells who serves the queue of workflows, which comes first, and each rung of a ladder.
func (s *Starter) Serving(ctx context.Context, ladder []string) ([]Rung, error) {
	first, err := s.served(ctx, gpumux.Queue)
	if err != nil {
		return nil, err
	}
	first.Name = "workflows"
	rungs := []Rung{first}
	for _, name := range ladder {
		queue, err := gpumux.RungQueue(name)
		if err != nil {
			return nil, err
		}
		rung, err := s.served(ctx, queue)
		if err != nil {
			return nil, err
		}
		rung.Name = name
		rungs = append(rungs, rung)
	}
	return rungs, nil
}

// stale is when a poller that has not asked again is taken for gone. A long poll lasts up to 70 s.
const stale = 90 * time.Second

func (s *Starter) served(ctx context.Context, queue string) (Rung, error) {
	rung := Rung{Queue: queue}
	answer, err := s.Client.DescribeTaskQueue(ctx, queue, enumspb.TASK_QUEUE_TYPE_ACTIVITY)
	if err != nil {
		return rung, fmt.Errorf("ask who serves queue %s: %w", queue, err)
	}
	for _, poller := range answer.GetPollers() {
		if time.Since(poller.GetLastAccessTime().AsTime()) < stale {
			rung.Pollers++
		}
	}
	alive, _, err := s.heartbeats(ctx, queue)
	rung.Workers = len(alive)
	return rung, err
}

// Worker is a worker as a client sees it.
type Worker struct {
	// Identity is host/process.
	Identity string `json:"identity"`
	// Seen is when the server last heard of it.
	Seen time.Time `json:"seen"`
	// Offer is what it says of itself; nil when it does not answer, and Error is why then.
	Offer *gpumux.Describe `json:"offer,omitempty"`
	Error string           `json:"error,omitempty"`
}

// answering is how long each of many workers may take to answer.
const answering = 8 * time.Second

// Workers asks every worker what it offers, in order of identity. One that was killed lately, or stands still, is listed without an
// offer. Without any it is a *NoWorker.
func (s *Starter) Workers(ctx context.Context) ([]Worker, error) {
	seen, err := s.identities(ctx)
	if err != nil {
		return nil, err
	}
	if len(seen) == 0 {
		return nil, &NoWorker{Queue: gpumux.Queue}
	}
	var workers []Worker
	for _, identity := range slices.Sorted(maps.Keys(seen)) {
		workers = append(workers, Worker{Identity: identity, Seen: seen[identity]})
	}
	const most = 32
	abreast(len(workers), most, func(i int) {
		w := &workers[i]
		offer, err := s.ask(ctx, contract.WorkerQueue(w.Identity), answering)
		switch {
		case err == nil:
			w.Offer, w.Seen = &offer, time.Now()
		case unreachable(err):
			w.Error = fmt.Sprintf("it has not answered within %s", answering)
		default:
			w.Error = err.Error()
		}
	})
	return workers, context.Cause(ctx)
}

// identities are the workers that the server knows, with when it last heard of them: by their heartbeats where it keeps those, else by
// what they ask for.
func (s *Starter) identities(ctx context.Context) (map[string]time.Time, error) {
	seen := map[string]time.Time{}
	answer, err := s.Client.DescribeTaskQueue(ctx, gpumux.Queue, enumspb.TASK_QUEUE_TYPE_ACTIVITY)
	if err != nil {
		return nil, fmt.Errorf("ask who serves queue %s: %w", gpumux.Queue, err)
	}
	for _, poller := range answer.GetPollers() {
		if at := poller.GetLastAccessTime().AsTime(); time.Since(at) < stale {
			seen[poller.GetIdentity()] = at
		}
	}
	alive, ended, err := s.heartbeats(ctx, gpumux.Queue)
	if err != nil {
		return nil, err
	}
	lives := map[string]bool{}
	for _, w := range alive {
		lives[w.GetWorkerIdentity()] = true
		if _, known := seen[w.GetWorkerIdentity()]; !known {
			seen[w.GetWorkerIdentity()] = w.GetStartTime().AsTime()
		}
	}
	for _, w := range ended {
		if !lives[w.GetWorkerIdentity()] {
			delete(seen, w.GetWorkerIdentity())
		}
	}
	return seen, nil
}

// heartbeats are the workers of a queue that the server knows by their heartbeats. There are none on an older server, or where
// heartbeats are off.
func (s *Starter) heartbeats(ctx context.Context, queue string) (alive, ended []*workerpb.WorkerListInfo, err error) {
	request := &workflowservice.ListWorkersRequest{Namespace: s.namespace(), PageSize: 100, Query: "TaskQueue = " + strconv.Quote(queue)}
	for {
		page, err := s.Client.WorkflowService().ListWorkers(ctx, request)
		if errors.As(err, new(*serviceerror.Unimplemented)) || errors.As(err, new(*serviceerror.InvalidArgument)) {
			return nil, nil, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("ask which workers serve queue %s: %w", queue, err)
		}
		for _, w := range page.GetWorkers() {
			switch w.GetStatus() {
			case enumspb.WORKER_STATUS_SHUTDOWN, enumspb.WORKER_STATUS_SHUTTING_DOWN:
				ended = append(ended, w)
			default:
				alive = append(alive, w)
			}
		}
		if request.NextPageToken = page.GetNextPageToken(); len(request.NextPageToken) == 0 {
			return alive, ended, nil
		}
	}
}

// PoolsOf are the pools on which workers offer a task, in order of name.
func PoolsOf(workers []Worker, task string) []string {
	var pools []string
	for _, w := range workers {
		if w.Offer == nil || !slices.Contains(w.Offer.Tasks, strings.Replace(task, ".py:", ":", 1)) {
			continue
		}
		for _, pool := range w.Offer.Pools {
			pools = append(pools, pool.Name)
		}
	}
	slices.Sort(pools)
	return slices.Compact(pools)
}

// HandOn ends the attempts at chunks, merges and the like whose worker is known to be dead, so that others take them at once instead
// of after the heartbeat's timeout. Dead is asked with the identity of a worker, host/pid. It returns how many it handed on.
func (s *Starter) HandOn(ctx context.Context, dead func(identity string) bool) (int, error) {
	handed := 0
	for w, err := range s.workflows(ctx, "ExecutionStatus = 'Running'") {
		if err != nil {
			return handed, fmt.Errorf("list running workflows: %w", err)
		}
		n, err := s.handOn(ctx, w.GetExecution().GetWorkflowId(), dead)
		if handed += n; err != nil {
			return handed, err
		}
	}
	return handed, nil
}

func (s *Starter) handOn(ctx context.Context, id string, dead func(string) bool) (handed int, err error) {
	d, err := s.Client.DescribeWorkflowExecution(ctx, id, "")
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
		lost := gpumux.Fault{Kind: gpumux.Crash, Op: "run", Blameless: true,
			Message: "the worker " + a.GetLastWorkerIdentity() + " is gone; its work goes on elsewhere"}
		runID := d.GetWorkflowExecutionInfo().GetExecution().GetRunId()
		err := s.Client.CompleteActivityByID(ctx, s.namespace(), id, runID, a.GetActivityId(), nil,
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

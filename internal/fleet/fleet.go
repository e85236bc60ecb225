// Package fleet asks Temporal who serves its queues, and workers what they offer and run.
//
// It owns connection files and how Temporal is dialed, the codec at that connection, how
// long an answer may take, and who counts as there. It never starts a map. Every call
// ends with its context; a client is the caller's to close.
package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workerpb "go.temporal.io/api/worker/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"golang.org/x/sync/errgroup"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/names"
)

type Fleet struct {
	Client client.Client
	// Namespace is the client's. Default "default".
	Namespace string
}

func (f *Fleet) namespace() string { return cmp.Or(f.Namespace, client.DefaultNamespace) }

// WaitingFor says that a map with a step without a worker for its ladder waits for one,
// not a slot. The rungs are those of all pools.
func WaitingFor(reported string, in gpumux.MapInput, rungs []gpumux.Rung) string {
	pool, ok := strings.CutPrefix(reported, "a slot of pool ")
	for _, step := range in.Steps() {
		serves := func(r gpumux.Rung) bool { return r.Served() && slices.Contains(step.Rungs(), r.Name) }
		if ok && len(rungs) > 0 && slices.Contains(step.Rungs(), pool) && !slices.ContainsFunc(rungs, serves) {
			return "a worker for pool " + pool
		}
	}
	return reported
}

// Serving returns who serves the workflows, first, and each rung of a ladder.
func (f *Fleet) Serving(ctx context.Context, ladder []string) ([]gpumux.Rung, error) {
	rungs := []gpumux.Rung{{Name: "workflows", Queue: gpumux.Queue}}
	for _, name := range ladder {
		rungs = append(rungs, gpumux.Rung{Name: name, Queue: names.PoolQueue(name)})
	}
	for i, r := range rungs {
		served, err := f.Rung(ctx, r.Queue)
		if err != nil {
			return nil, err
		}
		rungs[i].Pollers, rungs[i].Workers = served.Pollers, served.Workers
	}
	return rungs, nil
}

// stale is when a poller is taken for gone. A long poll lasts up to 70 s.
const stale = 90 * time.Second

// Rung tells who serves a queue.
func (f *Fleet) Rung(ctx context.Context, queue string) (gpumux.Rung, error) {
	polled, err := f.polled(ctx, queue)
	if err != nil {
		return gpumux.Rung{Queue: queue}, err
	}
	alive, _, err := f.heartbeats(ctx, queue)
	return gpumux.Rung{Queue: queue, Pollers: len(polled), Workers: len(alive)}, err
}

// polled returns the workers that asked a queue for work lately, by identity, and when.
func (f *Fleet) polled(ctx context.Context, queue string) (map[string]time.Time, error) {
	answer, err := f.Client.DescribeTaskQueue(ctx, queue, enumspb.TASK_QUEUE_TYPE_ACTIVITY)
	if err != nil {
		return nil, fmt.Errorf("ask who serves queue %s: %w", queue, err)
	}
	polled := map[string]time.Time{}
	for _, poller := range answer.GetPollers() {
		if at := poller.GetLastAccessTime().AsTime(); time.Since(at) < stale {
			polled[poller.GetIdentity()] = at
		}
	}
	return polled, nil
}

type Worker struct {
	// Identity is host/process.
	Identity string `json:"identity"`
	// Seen is when the server last heard of it.
	Seen time.Time `json:"seen"`
	// Offer describes the worker; nil: it did not answer, and Error says why.
	Offer *contract.WorkerInfo `json:"offer,omitempty"`
	Error string               `json:"error,omitempty"`
}

const (
	// answering is how long each of many workers may take; askAtOnce are asked at a time.
	answering = 8 * time.Second
	askAtOnce = 32
)

// Workers asks every worker what it offers, in order of identity. A silent one has no
// offer. Without any it is a *NoWorkerError.
func (f *Fleet) Workers(ctx context.Context) ([]Worker, error) {
	seen, err := f.identities(ctx)
	if err != nil {
		return nil, err
	}
	if len(seen) == 0 {
		return nil, &NoWorkerError{Queue: gpumux.Queue}
	}
	workers := f.askAll(ctx, slices.Sorted(maps.Keys(seen)), answering)
	for i, w := range workers {
		if w.Offer == nil {
			workers[i].Seen = seen[w.Identity]
		}
	}
	return workers, context.Cause(ctx)
}

func (f *Fleet) askAll(ctx context.Context, identities []string, patience time.Duration) []Worker {
	workers := make([]Worker, len(identities))
	var asking errgroup.Group
	asking.SetLimit(askAtOnce)
	for i, identity := range identities {
		asking.Go(func() error {
			w := Worker{Identity: identity}
			offer, err := f.describe(ctx, contract.WorkerQueue(identity), patience)
			switch {
			case err == nil:
				w.Offer, w.Seen = &offer, time.Now()
			case Unreachable(err):
				w.Error = fmt.Sprintf("it has not answered within %s", patience)
			default:
				w.Error = err.Error()
			}
			workers[i] = w
			return nil
		})
	}
	_ = asking.Wait() // each has its own error
	return workers
}

// identities returns the workers that the server knows, each with the time of its last
// sign: a heartbeat where the server keeps those, else a poll.
func (f *Fleet) identities(ctx context.Context) (map[string]time.Time, error) {
	polled, err := f.polled(ctx, gpumux.Queue)
	if err != nil {
		return nil, err
	}
	alive, ended, err := f.heartbeats(ctx, gpumux.Queue)
	seen := maps.Clone(polled)
	for _, w := range ended {
		delete(seen, w.GetWorkerIdentity())
	}
	for _, w := range alive { // also where an earlier worker of the same identity ended
		seen[w.GetWorkerIdentity()] = cmp.Or(polled[w.GetWorkerIdentity()], w.GetStartTime().AsTime())
	}
	return seen, err
}

// heartbeats are the workers of a queue that the server knows by their heartbeats. There
// are none on an older server, or where heartbeats are off.
func (f *Fleet) heartbeats(ctx context.Context, queue string) (alive, ended []*workerpb.WorkerListInfo, err error) {
	request := &workflowservice.ListWorkersRequest{Namespace: f.namespace(), PageSize: 100, Query: "TaskQueue = " + strconv.Quote(queue)}
	for {
		page, err := f.Client.WorkflowService().ListWorkers(ctx, request)
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
	pools := map[string]bool{}
	for _, offer := range offersOf(workers) {
		if slices.Contains(offer.Tasks, strings.Replace(task, ".py:", ":", 1)) {
			for _, pool := range offer.Pools {
				pools[pool.Name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(pools))
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

// Release hands on at once what a worker ran that has died, as its caller knows.
func (f *Fleet) Release(ctx context.Context, worker string) error {
	died := temporal.NewApplicationErrorWithOptions("worker "+worker+" died", "", temporal.ApplicationErrorOptions{NextRetryDelay: time.Millisecond})
	how := map[enumspb.PendingActivityState]error{
		enumspb.PENDING_ACTIVITY_STATE_STARTED: died, enumspb.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED: temporal.NewCanceledError(),
	}
	for info, err := range f.Workflows(ctx, "ExecutionStatus = 'Running'") {
		if err != nil {
			return err
		}
		id, run := info.GetExecution().GetWorkflowId(), info.GetExecution().GetRunId()
		found, err := f.Client.DescribeWorkflowExecution(ctx, id, run)
		if err != nil && !errors.As(err, new(*serviceerror.NotFound)) {
			return err
		}
		for _, a := range found.GetPendingActivities() {
			if end := how[a.GetState()]; end != nil && a.GetLastWorkerIdentity() == worker {
				err = f.Client.CompleteActivityByID(ctx, f.namespace(), id, run, a.GetActivityId(), nil, end)
			}
			if err != nil && !errors.As(err, new(*serviceerror.NotFound)) { // it has just ended
				return err
			}
		}
	}
	return nil
}

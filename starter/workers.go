package starter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

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

// abreast is how many workers are asked at a time.
const abreast = 32

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
	workers := make([]Worker, 0, len(seen))
	for identity, at := range seen {
		workers = append(workers, Worker{Identity: identity, Seen: at})
	}
	slices.SortFunc(workers, func(a, b Worker) int { return cmp.Compare(a.Identity, b.Identity) })
	var asking sync.WaitGroup
	room := make(chan struct{}, abreast)
	for i := range workers {
		room <- struct{}{}
		asking.Go(func() {
			defer func() { <-room }()
			w := &workers[i]
			offer, err := s.ask(ctx, contract.WorkerQueue(w.Identity), answering)
			switch {
			case err == nil:
				w.Offer, w.Seen = &offer, time.Now()
			case errors.Is(err, context.DeadlineExceeded) || unreachable(err):
				w.Error = fmt.Sprintf("it has not answered within %s", answering)
			default:
				w.Error = err.Error()
			}
		})
	}
	asking.Wait()
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
	ended, alive := map[string]bool{}, map[string]bool{}
	request := &workflowservice.ListWorkersRequest{Namespace: s.namespace(), PageSize: 100, Query: "TaskQueue = '" + gpumux.Queue + "'"}
	for {
		page, err := s.Client.WorkflowService().ListWorkers(ctx, request)
		if errors.As(err, new(*serviceerror.Unimplemented)) || errors.As(err, new(*serviceerror.InvalidArgument)) {
			return seen, nil // an older server, or heartbeats are off: pollers must do
		}
		if err != nil {
			return nil, fmt.Errorf("ask which workers serve queue %s: %w", gpumux.Queue, err)
		}
		for _, w := range page.GetWorkers() {
			switch w.GetStatus() {
			case enumspb.WORKER_STATUS_SHUTDOWN, enumspb.WORKER_STATUS_SHUTTING_DOWN:
				ended[w.GetWorkerIdentity()] = true
			default:
				alive[w.GetWorkerIdentity()] = true
				if _, known := seen[w.GetWorkerIdentity()]; !known {
					seen[w.GetWorkerIdentity()] = w.GetStartTime().AsTime()
				}
			}
		}
		if request.NextPageToken = page.GetNextPageToken(); len(request.NextPageToken) == 0 {
			maps.DeleteFunc(seen, func(identity string, _ time.Time) bool { return ended[identity] && !alive[identity] })
			return seen, nil
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

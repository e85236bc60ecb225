package starter

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/gpumux/gpumux"
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
	listed, err := s.Client.WorkflowService().ListWorkers(ctx, &workflowservice.ListWorkersRequest{
		Namespace: s.namespace(), PageSize: 100, Query: "TaskQueue = " + strconv.Quote(queue),
	})
	switch {
	case errors.As(err, new(*serviceerror.Unimplemented)), errors.As(err, new(*serviceerror.InvalidArgument)): // an older server, or heartbeats are off: pollers must do
	case err != nil:
		return rung, fmt.Errorf("ask which workers serve queue %s: %w", queue, err)
	default:
		for _, worker := range listed.GetWorkers() {
			switch worker.GetStatus() {
			case enumspb.WORKER_STATUS_SHUTDOWN, enumspb.WORKER_STATUS_SHUTTING_DOWN:
			default:
				rung.Workers++
			}
		}
	}
	return rung, nil
}

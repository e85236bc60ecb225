package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

const (
	// activityWindow is how many activities a workflow of plain Temporal keeps in flight.
	activityWindow = 200
	// nothing is the activity that an item is, each its workflow.
	nothing = "gpumux.bench.Nothing"
	each    = "gpumux.bench.Each"
)

// plain is a Temporal worker without gpumux: a workflow that runs one activity per item, in Go and doing nothing.
type plain struct {
	client client.Client
	queue  string
	worker worker.Worker
}

func startPlain(c client.Client) (*plain, error) {
	p := &plain{client: c, queue: "gpumux-bench-" + rand.Text()}
	p.worker = worker.New(c, p.queue, worker.Options{
		MaxConcurrentActivityTaskPollers: 10, MaxConcurrentWorkflowTaskPollers: 4,
	})
	p.worker.RegisterActivityWithOptions(func(context.Context, int) (int, error) { return 0, nil }, activity.RegisterOptions{Name: nothing})
	p.worker.RegisterWorkflowWithOptions(eachItem, workflow.RegisterOptions{Name: each})
	if err := p.worker.Start(); err != nil {
		return nil, fmt.Errorf("start a plain Temporal worker: %w", err)
	}
	return p, nil
}

// eachItem runs an activity per item, with a window of them in flight.
func eachItem(ctx workflow.Context, items int) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
	inFlight := workflow.NewSemaphore(ctx, activityWindow)
	over := workflow.NewWaitGroup(ctx)
	var failed error
	for i := range items {
		if err := inFlight.Acquire(ctx, 1); err != nil {
			return err
		}
		over.Add(1)
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer over.Done()
			defer inFlight.Release(1)
			failed = errors.Join(failed, workflow.ExecuteActivity(ctx, nothing, i).Get(ctx, nil))
		})
	}
	over.Wait(ctx)
	return failed
}

// rate runs so many items and returns items per second. When ctx ends the workflow is terminated.
func (p *plain) rate(ctx context.Context, items int, hard context.Context) (float64, error) {
	began := time.Now()
	run, err := p.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: p.queue, ID: p.queue + "-" + rand.Text()}, each, items)
	if err == nil {
		err = run.Get(ctx, nil)
	}
	if ctx.Err() != nil {
		ending, done := context.WithTimeout(hard, 5*time.Second)
		defer done()
		if run != nil {
			_ = p.client.TerminateWorkflow(ending, run.GetID(), "", "gpumux bench was interrupted") // nothing is lost by it
		}
		return 0, context.Cause(ctx)
	}
	if err != nil {
		return 0, fmt.Errorf("run an activity per item: %w", err)
	}
	return float64(items) / time.Since(began).Seconds(), nil
}

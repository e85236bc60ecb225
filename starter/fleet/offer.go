package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// NoWorkerError says that nobody polls a queue.
type NoWorkerError struct {
	Queue string
	// Task is what was to run there, Pools are those that are served by workers which know it.
	Task  string
	Pools []string
}

// Error says what to start.
func (e *NoWorkerError) Error() string {
	if len(e.Pools) > 0 {
		return fmt.Sprintf("no worker serves queue %s; task %s is offered on the pool %s: give the pool %s, or start another worker",
			e.Queue, e.Task, strings.Join(e.Pools, ", "), e.Pools[0])
	}
	return fmt.Sprintf("no worker serves queue %s; start one with `gpumux worker -f gpumux.yaml` or `gpumux dev`", e.Queue)
}

// offering is how long a worker may take to say what it offers. One that is there takes milliseconds.
const offering = 10 * time.Second

// Offer asks one worker what it offers: its store, pools and tasks. It takes milliseconds while a worker is there, and is a
// *NoWorkerError at once when there is none. Where the server has no standalone activities, a workflow asks.
func (f *Fleet) Offer(ctx context.Context) (gpumux.Describe, error) {
	rung, err := f.Rung(ctx, gpumux.Queue)
	if err != nil {
		return gpumux.Describe{}, err
	}
	if !rung.Served() {
		return gpumux.Describe{}, &NoWorkerError{Queue: gpumux.Queue}
	}
	return f.ask(ctx, gpumux.Queue, offering)
}

// ask asks whoever serves a queue what it offers.
func (f *Fleet) ask(ctx context.Context, queue string, patience time.Duration) (gpumux.Describe, error) {
	var offer gpumux.Describe
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	const summary = "a client asks what the workers offer"
	id := "gpumux-describe-" + rand.Text()
	var asked interface {
		Get(ctx context.Context, answer any) error
	}
	var err error
	asked, err = f.Client.ExecuteActivity(ctx, client.StartActivityOptions{
		ID: id, TaskQueue: queue, Summary: summary,
		ScheduleToCloseTimeout: patience, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
	}, contract.DescribeWorker)
	if errors.As(err, new(*serviceerror.Unimplemented)) {
		asked, err = f.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
			ID: id, TaskQueue: queue, StaticSummary: summary, WorkflowExecutionTimeout: patience,
		}, contract.DescribeWorkflow)
	}
	if err == nil {
		err = asked.Get(ctx, &offer)
	}
	if err != nil {
		return offer, fmt.Errorf("ask a worker what it offers: %w", WithKeysHint(err))
	}
	return offer, nil
}

package activities

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// Watch serves the queue on which maps ask whether anybody serves a pool.
type Watch struct {
	Pool string
	// Serves reports whether a device of the pool works on this worker, Runs whether calls
	// run there, as they do to their end on a device that gets no more of them.
	Serves, Runs func() bool
}

// Register registers WatchPool.
func (w *Watch) Register(r worker.ActivityRegistry) {
	r.RegisterActivityWithOptions(checked(w.watchPool), activity.RegisterOptions{Name: contract.WatchPool})
}

const watchEvery = 2 * time.Second

// watchPool runs for as long as a device of the pool works, or calls run there. Then it
// fails, and another worker may go on.
func (w *Watch) watchPool(ctx context.Context, in contract.WatchInput) (bool, error) {
	every, stop, stopping := watchEvery, activity.GetWorkerStopChannel(ctx), false
	defer heartbeat(ctx)()
	for {
		if !w.Runs() && (stopping || !w.Serves()) {
			return false, retry(&gpumux.Fault{Kind: gpumux.FaultDeviceLost, Op: "start", Message: "pool " + w.Pool + " has no healthy device here"}, 0)
		}
		if in.Once {
			return true, nil
		}
		select {
		case <-time.After(every):
		case <-stop:
			// The worker waits for this activity, too.
			stop, stopping, every = nil, true, 100*time.Millisecond
		case <-ctx.Done():
			cause := context.Cause(ctx)
			if temporal.IsCanceledError(cause) || errors.Is(cause, context.Canceled) {
				// The caller has its answer. An error would only reach the worker's log.
				cause = nil
			}
			return false, cause
		}
	}
}

package activities

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// Watch serves the queue on which maps ask whether anybody serves a pool.
type Watch struct {
	Pool string
	// Healthy reports whether a device of the pool works on this worker.
	Healthy func() bool
}

// Register registers WatchPool.
func (w *Watch) Register(r worker.ActivityRegistry) {
	r.RegisterActivityWithOptions(checked(w.WatchPool), activity.RegisterOptions{Name: contract.WatchPool})
}

// WatchPool runs for as long as a device of the pool works. Then it fails, and another worker may go on.
func (w *Watch) WatchPool(ctx context.Context, in contract.WatchInput) (bool, error) {
	tick := time.NewTicker(contract.HeartbeatEvery)
	defer tick.Stop()
	for {
		if !w.Healthy() {
			return false, retry(&gpumux.Fault{Kind: gpumux.DeviceLost, Op: "start", Message: "pool " + w.Pool + " has no healthy device here"}, 0)
		}
		if in.Once {
			return true, nil
		}
		activity.RecordHeartbeat(ctx)
		select {
		case <-tick.C:
		case <-activity.GetWorkerStopChannel(ctx):
			return false, retry(&gpumux.Fault{Kind: gpumux.Canceled, Op: "run", Message: "the worker shuts down"}, 0)
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

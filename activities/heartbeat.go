package activities

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/gpumux/gpumux/internal/contract"
)

// heartbeat sends heartbeats with the same details until stopped.
func heartbeat(ctx context.Context, details ...any) (stop func()) {
	return every(beatPause(ctx), beatPause(ctx), func() { activity.RecordHeartbeat(ctx, details...) })
}

// beatPause is the pause between the heartbeats of an activity that is not to wait long
// to hear of its cancellation.
func beatPause(ctx context.Context) time.Duration {
	return min(contract.HeartbeatEvery, contract.PauseOf(activity.GetInfo(ctx).HeartbeatTimeout))
}

// every calls f after a first pause and then after the same one each time, until stopped;
// stopping waits for a call under way.
func every(first, pause time.Duration, f func()) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		next := time.NewTimer(first)
		defer next.Stop()
		for {
			select {
			case <-next.C:
			case <-quit:
				return
			}
			f()
			next.Reset(pause)
		}
	}()
	return func() { close(quit); <-done }
}

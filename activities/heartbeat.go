package activities

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/gpumux/gpumux/internal/contract"
)

func heartbeat(ctx context.Context, details ...any) (stop func()) {
	return every(contract.PauseOf(activity.GetInfo(ctx).HeartbeatTimeout), func() { activity.RecordHeartbeat(ctx, details...) })
}

// every calls f after a pause and then after the same one each time, until stopped;
// stopping waits for a call under way.
func every(pause time.Duration, f func()) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-time.After(pause):
				f()
			case <-quit:
				return
			}
		}
	}()
	return func() { close(quit); <-done }
}

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

// limit is the clock of a chunk that may only take so long. It starts at the first
// result, so that the start of a process and a model that the first item loads do not
// count. The zero value never ends.
type limit struct {
	after       time.Duration
	first, last time.Time
	results     int64
}

func (l *limit) note() {
	if l.after == 0 {
		return
	}
	l.last = time.Now()
	if l.results++; l.results == 1 {
		l.first = l.last
	}
}

func (l *limit) over() bool { return l.after > 0 && l.results > 0 && time.Since(l.first) >= l.after }

func (l *limit) pace() time.Duration {
	return max(1, l.last.Sub(l.first)/time.Duration(max(1, l.results-1)))
}

package activities

import (
	"context"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/gpumux/gpumux/internal/contract"
)

// firstBeat is when a chunk heartbeats first. Its results are stored from then on, because the next attempt learns from the
// heartbeat where they lie; a chunk that ends before is stored as a whole.
const firstBeat = 150 * time.Millisecond

// beat heartbeats until stopped, whatever the store does.
func (r *run) beat() (stop func()) {
	beat := func() { activity.RecordHeartbeat(r.ctx, r.l.snapshot(r.waits())) }
	pause := firstBeat
	return every(func() time.Duration { return pause }, func() {
		beat() // the first one returns when it was answered
		pause = contract.HeartbeatEvery
		r.l.tell()
	})
}

// every calls f after each pause until stopped; stopping waits for a call under way.
func every(pause func() time.Duration, f func()) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		next := time.NewTimer(pause())
		defer next.Stop()
		for {
			select {
			case <-next.C:
			case <-quit:
				return
			}
			f()
			next.Reset(pause())
		}
	}()
	return func() { close(quit); <-done }
}

// waits says what results wait for, for people who look at the pending activity.
func (r *run) waits() string {
	if r.stream == nil {
		return ""
	}
	return r.stream.why()
}

// uncrowded waits while too many bytes of results wait for the store, so that a store which is slow or away costs no memory without
// bound. The error is why ctx ended.
func (r *run) uncrowded(ctx context.Context) error {
	if r.stream == nil {
		return nil
	}
	for {
		less := r.stream.room()
		if less == nil {
			return nil
		}
		select {
		case <-less:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// flush stores what has finished. When the chunk has succeeded it does not give up: a store that is full or away holds the
// chunk, not the slot, and loses nothing.
func (r *run) flush(ctx context.Context, insist bool) error {
	if r.stream == nil || r.l.inline() {
		return nil
	}
	if !insist {
		// The activity's context may have ended already; what has finished is worth a moment.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
	}
	return r.stream.flush(ctx)
}

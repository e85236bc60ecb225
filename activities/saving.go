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

// heartbeat sends heartbeats until stopped. It does not wait for the store.
func (a *attempt) heartbeat() (stop func()) {
	beat := func() { activity.RecordHeartbeat(a.ctx, a.ledger.snapshot(a.waitingFor())) }
	pause := firstBeat
	return every(func() time.Duration { return pause }, func() {
		beat() // returns when it was answered
		pause = contract.HeartbeatEvery
		a.ledger.acknowledge()
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

// waitingFor says what results wait for. People see it at the pending activity.
func (a *attempt) waitingFor() string {
	if err := a.unkept.Load(); err != nil {
		return "a file of an item waits for the store: " + (*err).Error()
	}
	if a.stream == nil {
		return ""
	}
	return a.stream.WaitingFor()
}

// awaitRoom waits while too many bytes of results wait for the store, so that memory stays bounded while the store is slow or away.
// The error is why ctx ended.
func (a *attempt) awaitRoom(ctx context.Context) error {
	if a.stream == nil {
		return nil
	}
	for {
		less := a.stream.Room(inlineResults)
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

// flush stores what has finished. With insist it does not give up: a store that is full or away holds up the chunk, but not the
// slot, and no result is lost.
func (a *attempt) flush(ctx context.Context, insist bool) error {
	if a.stream == nil || a.ledger.inline() {
		return nil
	}
	if !insist {
		// The activity's context may have ended already.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
	}
	return a.stream.Flush(ctx)
}

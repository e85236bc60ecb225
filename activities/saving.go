package activities

import (
	"context"
	"runtime/debug"
	"time"

	"go.temporal.io/sdk/activity"
)

const (
	// storeEvery is how often a chunk stores what has finished since: a killed worker loses no more than that. A store where
	// a write takes long is written to less often, so that writing costs at most a twentieth of the time.
	storeEvery = 250 * time.Millisecond
	storeShare = 20
	// mostSaving bounds how long a write counts as having taken, so that a store which hung is soon written to again.
	mostSaving = 500 * time.Millisecond
	// unstored is how many bytes of results may wait for a store that is slow or away before a chunk takes no further item.
	unstored = 32 << 20
)

// beat heartbeats until stopped, whatever the store does.
func (r *run) beat() (stop func()) {
	return every(func() time.Duration { return beatEvery }, nil, func() { activity.RecordHeartbeat(r.ctx, r.l.snapshot()) })
}

// save stores results until stopped.
func (r *run) save() (stop func()) {
	took, failed := time.Duration(0), false
	pressed := func() <-chan struct{} {
		if failed {
			return nil
		}
		return r.l.pressed
	}
	return every(func() time.Duration { return max(storeEvery, storeShare*took) }, pressed, func() {
		if r.l.inline() {
			return
		}
		began := time.Now()
		err := r.flushOnce(r.ctx)
		took, failed = min(time.Since(began), mostSaving), err != nil
		r.waits(err)
	})
}

// every calls f after each pause, or earlier when pressed, until stopped; stopping waits for a call under way.
func every(pause func() time.Duration, pressed func() <-chan struct{}, f func()) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		next := time.NewTimer(pause())
		defer next.Stop()
		for {
			var early <-chan struct{}
			if pressed != nil {
				early = pressed()
			}
			select {
			case <-next.C:
			case <-early:
			case <-quit:
				return
			}
			f()
			next.Reset(pause())
		}
	}()
	return func() { close(quit); <-done }
}

// waits tells people that results wait for the store, or that they no longer do.
func (r *run) waits(err error) {
	switch {
	case err == nil:
		r.l.wait("")
	case r.ctx.Err() == nil:
		r.log.Warn("results wait for the store", "error", err)
		r.l.wait("results wait for the store: " + err.Error())
	}
}

// paced hands on no further item while too many bytes of results wait for the store, so that a store which is slow or away
// costs no memory without bound.
func (r *run) paced(ctx context.Context, yield func(Item, error) bool) func(Item, error) bool {
	return func(item Item, err error) bool {
		for r.chunk.Parts != "" && err == nil {
			waiting, less := r.l.unstored()
			if waiting <= unstored {
				break
			}
			select {
			case <-less:
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		}
		return yield(item, err)
	}
}

// flush stores what has finished. When the chunk has succeeded it does not give up: a store that is full or away holds the
// chunk, not the slot, and loses nothing.
func (r *run) flush(ctx context.Context, insist bool) error {
	if r.l.inline() {
		return nil
	}
	if !insist {
		// The activity's context may have ended already; what has finished is worth a moment.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
	}
	delay := 200 * time.Millisecond
	for {
		err := r.flushOnce(ctx)
		if err == nil || !insist {
			return err
		}
		r.waits(err)
		activity.RecordHeartbeat(ctx, r.l.snapshot())
		select {
		case <-time.After(delay):
			delay = min(2*delay, 5*time.Second)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (r *run) flushOnce(ctx context.Context) error {
	results := r.l.take()
	if len(results) == 0 {
		return nil
	}
	err := r.Store.WritePart(ctx, r.chunk.Parts, r.chunk.Start, r.chunk.End, r.seq, results)
	large := r.l.settle(results, err == nil) > unstored
	if err == nil {
		r.seq++
	}
	if large && err == nil {
		// Otherwise the collector lets as much again pile up before it looks.
		debug.FreeOSMemory()
	}
	return err
}

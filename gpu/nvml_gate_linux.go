//go:build cgo

package gpu

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// callGate gives the driver one call at a time about a device: one that
// hangs, as when a GPU falls off the bus, cannot be ended, and others would hang too.
type callGate struct {
	held  chan struct{}             // full while a call runs
	since atomic.Pointer[time.Time] // when that call began, or nil
}

func newCallGate() *callGate { return &callGate{held: make(chan struct{}, 1)} }

// silent is how long the driver has owed an answer.
func (g *callGate) silent() time.Duration {
	if since := g.since.Load(); since != nil {
		return time.Since(*since)
	}
	return 0
}

// acquire waits for the call before, unless that has run for longer than patience.
func (g *callGate) acquire(patience time.Duration, limit <-chan time.Time) bool {
	if g.silent() >= patience {
		return false
	}
	select {
	case g.held <- struct{}{}:
	case <-limit:
		return false
	}
	now := time.Now()
	g.since.Store(&now)
	return true
}

func (g *callGate) release() {
	g.since.Store(nil)
	<-g.held
}

// ask runs a call of the library about a device and waits for it. The caller has acquired
// the driver.
func ask[T any](d *nvmlDriver, g *callGate, patience time.Duration, call func() (T, error)) (T, error) {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	if !g.acquire(patience, limit.C) {
		var none T
		return none, silentFor(max(patience, g.silent()))
	}
	return await(context.Background(), d, patience, limit.C, func() (T, error) {
		defer g.release()
		return call()
	})
}

// await runs a call of the library, which goes on where the wait for it ends.
func await[T any](ctx context.Context, d *nvmlDriver, patience time.Duration, limit <-chan time.Time, call func() (T, error)) (none T, _ error) {
	type answer struct {
		value T
		err   error
	}
	answered := make(chan answer, 1)
	d.calls.Go(func() {
		value, err := call()
		answered <- answer{value, err}
	})
	select {
	case a := <-answered:
		return a.value, a.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	case <-limit:
		return none, silentFor(patience)
	}
}

func silentFor(since time.Duration) error {
	return fmt.Errorf("%w for %s", ErrSilent, since.Round(time.Second))
}

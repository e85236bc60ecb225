//go:build cgo

package gpu

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// callGate gives the driver one call at a time about a device: one that hangs, as when a
// GPU falls off the bus, cannot be ended, and others would hang too.
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
func (g *callGate) acquire(ctx context.Context, patience time.Duration) error {
	if silent := g.silent(); silent >= patience {
		return silentFor(silent)
	}
	select {
	case g.held <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	now := time.Now()
	g.since.Store(&now)
	return nil
}

func (g *callGate) release() {
	g.since.Store(nil)
	<-g.held
}

// inquire asks about one device.
func inquire[T any](d *nvmlDriver, uuid string, call func(nvml.Device) (T, error)) (none T, _ error) {
	if err := d.acquire(); err != nil {
		return none, err
	}
	defer d.release()
	dev, ok := d.listed[uuid]
	if !ok {
		return none, fmt.Errorf("gpu: %w %q", ErrUnknown, uuid)
	}
	ctx, cancel := patient(context.Background(), d.patience)
	defer cancel()
	if err := dev.acquire(ctx, d.patience); err != nil {
		return none, err
	}
	return await(ctx, d, func() (T, error) {
		defer dev.release()
		return call(dev.handle)
	})
}

// await runs a call of the library, which goes on where the wait for it ends.
func await[T any](ctx context.Context, d *nvmlDriver, call func() (T, error)) (none T, _ error) {
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
	}
}

// patient is a context that ends with ErrSilent.
func patient(ctx context.Context, patience time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, patience, silentFor(patience))
}

func silentFor(since time.Duration) error {
	return fmt.Errorf("%w for %s", ErrSilent, since.Round(time.Second))
}

//go:build cgo

package gpu

import (
	"context"
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// inquire asks about one device, when the question before has its answer.
func inquire[T any](d *nvmlDriver, uuid string, call func(nvml.Device) (T, error)) (none T, _ error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.closed {
		return none, ErrClosed
	}
	device, ok := d.listed[uuid]
	if !ok {
		return none, fmt.Errorf("gpu: %w %q", ErrUnknown, uuid)
	}
	ctx, cancel := patient(context.Background(), d.patience)
	defer cancel()
	select {
	case device.turn <- struct{}{}:
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	return await(ctx, d, func() (T, error) {
		defer func() { <-device.turn }()
		return call(device.handle)
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
	return context.WithTimeoutCause(ctx, patience, fmt.Errorf("%w for %s", ErrSilent, patience))
}

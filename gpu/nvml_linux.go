//go:build cgo

package gpu

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// openDriver loads and initialises NVML, or returns an absentError.
func openDriver(ctx context.Context, path string) (driver, error) {
	paths := libraryPaths
	if path != "" {
		paths = []string{path}
	}
	found, err := load(paths)
	if err != nil {
		return nil, err
	}
	return openNVML(ctx, nvml.New(nvml.WithLibraryPath(found)))
}

type nvmlDriver struct {
	lib       nvml.Interface
	patience  time.Duration // longest wait for an answer
	listLimit time.Duration // longest wait for the driver's start, and for its list of GPUs

	listed map[string]nvmlDevice // by UUID; written by devices, before anyone else has the driver

	mu     sync.RWMutex // guards closed; a question holds it until it is answered or given up
	closed bool
	calls  sync.WaitGroup // of the library, also those that nobody waits for any more
}

// nvmlDevice is asked one question at a time: a call that hangs, as when a GPU falls off
// the bus, cannot be ended, and others would hang too.
type nvmlDevice struct {
	handle nvml.Device
	info   Device
	turn   chan struct{} // full while a call runs
}

// openNVML initialises the library; tests give a mock.
func openNVML(ctx context.Context, lib nvml.Interface) (*nvmlDriver, error) {
	// A first call may wait seconds for a GPU that nobody uses to wake up.
	d := &nvmlDriver{lib: lib, listed: map[string]nvmlDevice{}, patience: 2 * time.Second, listLimit: 30 * time.Second}
	ctx, cancel := patient(ctx, d.listLimit)
	defer cancel()
	ret, err := await(ctx, d, func() (nvml.Return, error) { return lib.Init(), nil })
	switch {
	case errors.Is(err, ErrSilent):
		return nil, &absentError{fmt.Sprintf("the NVIDIA driver: %v", err), hintSilent}
	case err != nil:
		return nil, err
	case ret != nvml.SUCCESS:
		return nil, initError(ret)
	}
	return d, nil
}

const hintSilent = "see what nvidia-smi and dmesg say; the host may have to restart"

func initError(ret nvml.Return) error {
	hint := "see what nvidia-smi says"
	switch ret {
	case nvml.ERROR_DRIVER_NOT_LOADED:
		hint = "load its kernel module (modprobe nvidia), give the container GPU access, or use devices: cpu"
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		hint = "library and kernel module differ, as after an update: restart the host"
	case nvml.ERROR_NO_PERMISSION:
		hint = "let this user open /dev/nvidiactl and /dev/nvidia*"
	}
	return &absentError{fmt.Sprintf("the NVIDIA driver is not ready: %v", ret), hint}
}

// close leaves the library open where a call of it does not come back.
func (d *nvmlDriver) close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		d.calls.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-time.After(d.patience):
		return nil
	}
	if ret := d.lib.Shutdown(); ret != nvml.SUCCESS {
		return fmt.Errorf("gpu: shut NVML down: %w", failed(ret))
	}
	return nil
}

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

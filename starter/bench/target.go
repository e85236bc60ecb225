package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gpumux/gpumux/gpu"
)

// Lacking says that something is missing on this machine without which nothing can be measured.
type Lacking struct{ Message string }

// Error says what to install or to give.
func (e *Lacking) Error() string { return e.Message }

// target is a device with the framework that calculates on it.
type target struct {
	device gpu.Device
	probe  probe
}

// gpu reports whether the target is a GPU.
func (t *target) gpu() bool { return t.device.Kind != gpu.KindCPU }

// name is the device for people.
func (t *target) name() string {
	if t.probe.Device != "" {
		return t.probe.Device
	}
	return t.device.Name
}

// framework is the framework with its version.
func (t *target) framework() string {
	return strings.TrimSpace(t.probe.Framework + " " + t.probe.Version)
}

// deviceEnv shows a process one device, before its slots are there to be asked for their environment.
func deviceEnv(d gpu.Device) map[string]string {
	if d.Kind != gpu.KindCPU {
		return map[string]string{"CUDA_VISIBLE_DEVICES": d.UUID, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
	}
	return map[string]string{"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
}

// frameworkEnv is the same for slots and bare processes: JAX would otherwise take most of a GPU at its start.
func frameworkEnv() map[string]string {
	return map[string]string{"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "PYTHONUNBUFFERED": "1"}
}

// environ is environments as a process takes them; of two values of a name the last counts.
func environ(parts ...map[string]string) (env []string) {
	for _, part := range parts {
		for name, value := range part {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// choose finds the device and, for a GPU, the CPU to compare it with.
func (b *bench) choose(ctx context.Context, inventory *gpu.Inventory) error {
	cpus, err := inventory.Select(gpu.Selection{"cpu"})
	if err != nil {
		return &Lacking{fmt.Sprintf("find this machine's CPU: %v", err)}
	}
	onCPU := &target{device: cpus[0]}
	if onCPU.probe, err = b.probeOn(ctx, onCPU.device); err != nil {
		return err
	}
	found, whyNot := b.chooseGPU(ctx, inventory)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case found != nil:
		b.on = found
		if b.o.Pool == "" && onCPU.usable(b.o.names()) == nil {
			b.cpu = onCPU
		}
	case b.o.Pool == "gpu":
		return &Lacking{whyNot.Error() + "; or measure the CPU with --pool cpu"}
	default:
		b.on = onCPU
		if whyNot != nil && !errors.Is(whyNot, errNoGPU) {
			b.note("the CPU is measured: %v", whyNot)
		}
	}
	return b.on.usable(b.o.names())
}

// errNoGPU is why a machine without GPUs measures its CPU, which needs no note.
var errNoGPU = errors.New("this machine has no GPU")

// chooseGPU is the first GPU that a framework reaches, or why there is none.
func (b *bench) chooseGPU(ctx context.Context, inventory *gpu.Inventory) (*target, error) {
	if b.o.Pool == "cpu" {
		return nil, nil
	}
	devices, err := inventory.Select(gpu.Selection{"all"})
	if err != nil || len(devices) == 0 {
		return nil, fmt.Errorf("%w that gpumux can use: %s", errNoGPU, inventory.Reason())
	}
	t := &target{device: devices[0]}
	if t.probe, err = b.probeOn(ctx, t.device); err != nil {
		return nil, err
	}
	if !t.probe.GPU && needsFramework(b.o.names()) {
		return nil, fmt.Errorf("no framework of %s reaches the GPU %s (%s); install one of them with CUDA, or give another --python",
			b.interpreter, t.device, t.probe.lacking())
	}
	if len(devices) > 1 && t.device.Kind == gpu.KindGPU {
		b.note("only the first of %d GPUs is measured", len(devices))
	}
	return t, nil
}

// usable says what the workloads lack, or nil.
func (t *target) usable(names []string) error {
	if !needsFramework(names) || t.probe.Framework != "" {
		return nil
	}
	return &Lacking{fmt.Sprintf("the workloads multiply matrices, and this Python has nothing that can (%s); "+
		"install one, such as numpy, give another --python, or measure --workloads light", t.probe.lacking())}
}

package gpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Options says where the devices come from. The zero value asks the NVIDIA driver.
type Options struct {
	// Library is the path of the NVML library, which has to load. Default: libnvidia-ml.so.1
	// on the loader's path, then where containers, WSL and NixOS put it.
	Library string
	// NoNVML leaves the driver alone: only the CPU device is listed. Default false.
	NoNVML bool
	// Static replaces the driver's list, for tests and hosts without NVML. Its devices have
	// no processes; one of KindCPU is the host with a smaller memory.
	Static []Device
	// IgnoreVisible also lists what CUDA_VISIBLE_DEVICES hides. Default false.
	IgnoreVisible bool
}

// driver is a GPU library, for many goroutines; close waits for calls.
type driver interface {
	devices(ctx context.Context) (found []Device, problems []error, err error)
	status(uuid string) (Status, error)
	load(uuid string) (Load, error)
	processes(uuid string) ([]Process, error)
	close() error
}

// Inventory is the devices of this host, for many goroutines. A question about one device
// is answered within about 2 s, or with ErrSilent.
type Inventory struct {
	driver   driver // nil without NVML
	static   bool
	list     []Device
	hidden   []Device // by CUDA_VISIBLE_DEVICES
	reasons  []string
	warnings []string
	// sign is evidence of a GPU on the host, where none can be used.
	sign string
}

// Open lists the GPUs in the driver's order, each MIG instance after its GPU, and last
// the CPU. A host without a driver is no error: Reason says why only the CPU is there. A
// GPU about which the driver does not answer within 30 s is left out. Open ends with ctx.
func Open(ctx context.Context, o Options) (*Inventory, error) {
	if len(o.Static) > 0 {
		return openStatic(o.Static), nil
	}
	if o.NoNVML {
		return &Inventory{list: []Device{cpuDevice()}, reasons: []string{"NVML is switched off, so no GPU is looked for"}}, nil
	}
	d, err := openDriver(ctx, o.Library)
	if absent := (*absentError)(nil); errors.As(err, &absent) && o.Library == "" {
		return &Inventory{list: []Device{cpuDevice()}, reasons: []string{absent.Error()}, sign: thisHost.sign()}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("gpu: open NVML: %w", err)
	}
	return openWith(ctx, d, o)
}

// openWith builds an Inventory over a driver that is ready, and closes it on failure.
func openWith(ctx context.Context, d driver, o Options) (*Inventory, error) {
	found, problems, err := d.devices(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("gpu: list devices: %w", err), d.close())
	}
	inv := &Inventory{driver: d}
	for _, problem := range problems {
		inv.reasons = append(inv.reasons, problem.Error())
		inv.warnings = append(inv.warnings, "a GPU of this machine is not used: "+problem.Error())
		inv.sign = "the driver"
	}
	if len(found) == 0 && len(problems) == 0 {
		inv.sign = thisHost.sign()
		inv.reasons = append(inv.reasons, "the NVIDIA driver is loaded but lists no GPU; "+
			"in a container, start it with GPU access (docker run --gpus all, or a GPU request in Kubernetes)")
	}
	if spec, set := os.LookupEnv("CUDA_VISIBLE_DEVICES"); set && !o.IgnoreVisible {
		kept := visible(found, spec)
		if n := len(found) - len(kept); n > 0 {
			inv.reasons = append(inv.reasons, fmt.Sprintf("%d of %d devices are hidden by CUDA_VISIBLE_DEVICES=%q", n, len(found), spec))
		}
		inv.hidden = slices.DeleteFunc(slices.Clone(found), func(d Device) bool { return slices.Contains(kept, d) })
		if len(kept) == 0 && !hidesAll(spec) {
			inv.sign = "CUDA_VISIBLE_DEVICES"
		}
		found = kept
	}
	if slices.ContainsFunc(found, Device.Usable) {
		inv.sign = ""
	} else if len(found) > 0 {
		inv.reasons = append(inv.reasons, noInstances)
		inv.sign = "the driver"
	}
	inv.list = append(found, cpuDevice())
	return inv, nil
}

// hidesAll reports whether a CUDA_VISIBLE_DEVICES is meant to hide all GPUs.
func hidesAll(spec string) bool {
	return slices.Contains([]string{"", "-1", "none", "void", "nodevfiles"}, strings.ToLower(strings.TrimSpace(spec)))
}

func openStatic(list []Device) *Inventory {
	inv := &Inventory{list: slices.Clone(list), static: true}
	if !slices.ContainsFunc(inv.list, func(d Device) bool { return d.Kind == KindCPU }) {
		inv.list = append(inv.list, cpuDevice())
	}
	return inv
}

// Devices is a copy of the list made by Open.
func (inv *Inventory) Devices() []Device { return slices.Clone(inv.list) }

// GPUs are the GPUs and MIG instances that can run processes, hidden ones included.
func (inv *Inventory) GPUs() []Device {
	return slices.DeleteFunc(slices.Concat(inv.list, inv.hidden), func(d Device) bool { return d.Kind == KindCPU || !d.Usable() })
}

// Reason says in a line why there is no GPU or what was left out, or is empty.
func (inv *Inventory) Reason() string { return strings.Join(inv.reasons, "; ") }

// Warnings say which GPUs are not listed because the driver fails them.
func (inv *Inventory) Warnings() []string { return slices.Clone(inv.warnings) }

// Unusable says why no GPU can be used although something points to one: a device file, a
// PCI device, the driver, CUDA_VISIBLE_DEVICES. It is empty where a GPU can be used, and
// where nothing points to one.
func (inv *Inventory) Unusable() string {
	if inv.sign == "" {
		return ""
	}
	return fmt.Sprintf("%s points to a GPU that cannot be used: %s", inv.sign, inv.Reason())
}

// Static reports whether the devices were given in Options.Static.
func (inv *Inventory) Static() bool { return inv.static }

func (inv *Inventory) device(uuid string) (Device, error) {
	for _, list := range [][]Device{inv.list, inv.hidden} {
		if i := slices.IndexFunc(list, func(d Device) bool { return d.UUID == uuid }); i >= 0 {
			return list[i], nil
		}
	}
	return Device{}, fmt.Errorf("gpu: %w %q: %s", ErrUnknown, uuid, inv.existing())
}

// Status is a device's state now.
func (inv *Inventory) Status(uuid string) (Status, error) {
	d, err := inv.device(uuid)
	if err != nil {
		return Status{}, err
	}
	switch {
	case d.Kind == KindCPU:
		return cpuStatus(d)
	case inv.driver == nil:
		s := unknown()
		s.Memory = Memory{Total: d.Memory, Free: d.Memory}
		return s, nil
	}
	return inv.driver.status(uuid)
}

// Load is what a GPU does now. The error wraps errors.ErrUnsupported for the CPU, for MIG
// instances, of which the driver does not tell, and without a driver.
func (inv *Inventory) Load(uuid string) (Load, error) {
	d, err := inv.device(uuid)
	if err != nil {
		return Load{}, err
	}
	if d.Kind != KindGPU || inv.driver == nil {
		return Load{}, fmt.Errorf("gpu: load of %s: %w", uuid, errors.ErrUnsupported)
	}
	return inv.driver.load(uuid)
}

// ProcessMemory is the bytes that each process holds on a GPU, 0 where the driver does
// not tell. The error wraps errors.ErrUnsupported where the driver lists no processes,
// and ErrLost when the device is gone.
func (inv *Inventory) ProcessMemory(uuid string) (map[int]uint64, error) {
	d, err := inv.device(uuid)
	if err != nil {
		return nil, err
	}
	out := map[int]uint64{}
	if d.Kind == KindCPU || inv.driver == nil {
		return out, nil
	}
	held, err := inv.driver.processes(uuid)
	for _, p := range held {
		out[p.PID] = p.Memory
	}
	return out, err
}

// Close waits for calls and releases the driver. It may be called again.
func (inv *Inventory) Close() error {
	if inv.driver == nil {
		return nil
	}
	return inv.driver.close()
}

// absentError says that this host has no usable NVML: a state of the host, not a mistake.
type absentError struct{ what, hint string }

func (e *absentError) Error() string { return e.what + "; " + e.hint }

const hintNoDriver = "install the NVIDIA driver, start the container with GPU access, or use devices: cpu"

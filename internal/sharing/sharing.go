// Package sharing lets the slots of a pool share devices.
//
// It owns the modes: what each can work with, what has to run for it, what processes
// need in their environment, and which of them a fault of one reaches. It never starts a
// task and changes no setting of a device. What a Host has started ends with Close, and
// with the worker however that ends.
package sharing

import (
	"context"
	"fmt"
	"os"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/mps"
)

// Use is a pool's wish for its devices.
type Use struct {
	// Slots is per device, PerSlot the devices of one slot. Auto: Slots is only the most.
	Slots, PerSlot int
	Auto           bool
	Devices        []gpu.Device
}

// MaxClients of an MPS server on a device of the Volta generation or later.
const MaxClients = 48

// Share is the part that the slots of a device have in common. Any goroutine may use it.
type Share interface {
	// Env is for a slot's process; whole says that it has the device to itself.
	Env(memory gpumux.Size, whole bool) map[string]string
	MPS() bool
	// Join makes a slot one of those that Siblings ends.
	Join(Sibling)
	// Await returns when the device takes new processes.
	Await(ctx context.Context) error
	// Siblings judges the fault of a call; whole: it had the device to itself. If all
	// processes on the device share it, all are ended, and it counts only against an item
	// that ran alone there.
	Siblings(ctx context.Context, began time.Time, whole bool, fault *gpumux.Fault)
}

// Sibling is a slot; *slot.Slot is one.
type Sibling interface {
	// Recycle ends its process, whatever that does. It returns when the process is gone.
	Recycle(ctx context.Context, why string) error
}

// apart is the share of processes with nothing in common, faults included.
type apart struct{ env map[string]string }

func (a apart) Env(gpumux.Size, bool) map[string]string                { return a.env }
func (apart) MPS() bool                                                { return false }
func (apart) Join(Sibling)                                             {}
func (apart) Await(ctx context.Context) error                          { return context.Cause(ctx) }
func (apart) Siblings(context.Context, time.Time, bool, *gpumux.Fault) {}

// Mode is one way to share a device; "" is Default.
type Mode string

// The modes.
const (
	Default Mode = "default" // the driver gives each process the device for a while
	MPS     Mode = "mps"     // kernels of all processes run side by side through one server
	MIG     Mode = "mig"     // each slot has a part of the hardware, as somebody has laid it out
)

// Check lists what cannot work, by fields of the pool. It starts nothing.
func (m Mode) Check(u Use) (problems []gpumux.Problem) {
	add := func(field, format string, args ...any) {
		problems = append(problems, gpumux.Problem{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	switch m {
	case "", Default:
	case MPS:
		checkMPS(u, add)
	case MIG:
		for _, d := range u.Devices {
			if d.Kind != gpu.KindMIG {
				add("devices", "%s is no MIG instance; leave it out, or lay it out: nvidia-smi -i %s -mig 1, "+
					"then nvidia-smi mig -cgi <profile> -C", d, d.UUID)
			}
		}
	default:
		add("sharing", "%q is unknown; use default, mig, mps", string(m))
	}
	return problems
}

// Prepare makes a slot's devices ready. It passes on the worker's settings of an MPS
// daemon, which processes would lack otherwise.
func (m Mode) Prepare(ctx context.Context, h *Host, u Use) (Share, error) {
	d := u.Devices[0]
	switch {
	case m == MPS:
		return h.prepareMPS(ctx, u)
	case m == MIG || d.Kind != gpu.KindGPU:
	case mps.Listens(mps.Pipe()):
		h.Log.Warn("an MPS daemon is there, so processes that share a device share its faults too; sharing: mps knows that and handles them",
			zap.String("device", d.UUID), zap.String("pipe", mps.Pipe()))
	}
	return apart{handedOn(d)}, nil
}

// handedOn is the worker's environment about a daemon, for one device.
func handedOn(d gpu.Device) map[string]string {
	env := map[string]string{}
	if d.Kind != gpu.KindGPU {
		return env
	}
	for _, name := range []string{mps.PipeVariable, mps.LimitVariable, mps.ThreadsVariable} {
		if value := os.Getenv(name); value != "" {
			env[name] = value
		}
	}
	return env
}

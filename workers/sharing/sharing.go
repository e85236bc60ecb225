// Package sharing lets the slots of a pool share devices.
//
// It owns the modes: what each can work with, what has to run for it, what processes need in their
// environment, what comes before their end, and which of them a fault of one reaches. It never starts
// a task and changes no setting of a device. What a Host has started ends with Close, and with the
// worker however that ends.
package sharing

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
)

// Use is what a pool wants of its devices.
type Use struct {
	// Slots is the number per device, PerSlot that of the devices of one slot. Auto says that Slots is only the most.
	Slots, PerSlot int
	Auto           bool
	Memory         gpumux.Size
	Threads        Percent
	// OtherUser says that processes may run as another user than the worker's, ByIndex that some want their device's number.
	OtherUser, ByIndex bool
	Devices            []gpu.Device
}

// Problem is what cannot work, with the field of the pool that is to change.
type Problem struct{ Field, Text string }

// MostClients is how many processes an MPS server has on a device of the Volta generation or later.
const MostClients = 48

// Share is what the slots on a device have of it. Its methods may be called from any goroutine.
type Share interface {
	// Env is what a slot's process needs in its environment; whole says that it has the device to itself.
	Env(memory gpumux.Size, whole bool) map[string]string
	// MPS says that processes share a server.
	MPS() bool
	// Join makes a slot one of those that Siblings ends.
	Join(Sibling)
	// Await returns when the device takes new processes. The turn is for Siblings.
	Await(ctx context.Context) (turn int, err error)
	// End is called before processes are killed, which ours chooses, and takes at most a moment.
	End(ours func(pid int) bool)
	// Siblings takes in the fault of a call that began at a turn. If it is the fault of all that share the device, they are all ended,
	// and those lose no attempt that did not cause it.
	Siblings(ctx context.Context, turn int, fault *gpumux.Fault)
}

// Sibling is a slot; *slot.Slot is one.
type Sibling interface {
	// Recycle ends its process, whatever that does. It returns when the process is gone.
	Recycle(ctx context.Context, why string) error
	// PID is the number of its process, or 0.
	PID() int
}

// Percent is a share of a GPU's multiprocessors; 0 means the default.
type Percent int

// UnmarshalText reads 50% or 50.
func (p *Percent) UnmarshalText(text []byte) error {
	n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(string(text), "%")))
	if err != nil || n < 1 || n > 100 {
		return fmt.Errorf("%q is not a share of a GPU's multiprocessors; write 1%% to 100%%", text)
	}
	*p = Percent(n)
	return nil
}

// apart is the share of processes that have nothing in common: no fault of one reaches another.
type apart struct{ env map[string]string }

// None is the share where nothing is shared.
var None Share = apart{}

func (a apart) Env(gpumux.Size, bool) map[string]string              { return a.env }
func (apart) MPS() bool                                              { return false }
func (apart) Join(Sibling)                                           {}
func (apart) Await(ctx context.Context) (int, error)                 { return 0, context.Cause(ctx) }
func (apart) End(func(int) bool)                                     {}
func (apart) Siblings(_ context.Context, _ int, fault *gpumux.Fault) {}

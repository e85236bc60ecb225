package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/workers/sharing"
)

// The ways to share a device, as pools name them.
const timeSliced, exclusive, mps, mig = "default", "exclusive", "mps", "mig"

// seats are the pools to measure; what this machine does not allow is named in the report.
func (b *bench) seats() (seats []seat) {
	for _, clients := range b.o.Clients {
		at := b.slicedSeat(clients)
		at.fresh = clients == b.most()
		seats = append(seats, at)
	}
	b.lacks(exclusive, "one slot has the device to itself, as 1 client has here")
	seats = append(seats, b.served()...)
	seats = append(seats, b.instances()...)
	if b.cpu != nil {
		seats = append(seats, b.cpuSeat())
	}
	return seats
}

// slicedSeat is the pool with so many slots that take turns.
func (b *bench) slicedSeat(clients int) seat {
	return seat{pool: fmt.Sprintf("bench-%d", clients), sharing: timeSliced, slots: clients, on: b.on, devices: []string{b.on.selector()}}
}

// cpuSeat is the pool on the CPU beside a GPU.
func (b *bench) cpuSeat() seat {
	return seat{pool: "bench-cpu", sharing: timeSliced, slots: cpuSlots(), on: b.cpu, devices: []string{b.cpu.selector()}}
}

// served are the pools under MPS.
func (b *bench) served() (seats []seat) {
	if why := b.refused(mps, b.most()); why != "" {
		b.lacks(mps, why)
		return nil
	}
	for _, clients := range b.o.Clients {
		at := b.slicedSeat(clients)
		at.sharing = mps
		seats = append(seats, at)
	}
	return seats
}

// instances are the pools of which every slot has an instance of a GPU.
func (b *bench) instances() (seats []seat) {
	if why := b.refused(mig, 1); why != "" {
		b.lacks(mig, why)
		return nil
	}
	var found []string
	for _, d := range b.inventory.Devices() {
		if d.Kind == gpu.KindMIG {
			found = append(found, d.UUID)
		}
	}
	for _, clients := range b.o.Clients {
		if clients > len(found) {
			b.lacks(mig, fmt.Sprintf("%d clients need as many instances, and there are %d", clients, len(found)))
			break
		}
		seats = append(seats, seat{pool: "bench-mig", sharing: mig, slots: 1, on: b.on, devices: found[:clients]})
	}
	return seats
}

// refused says why the device cannot be shared so, or nothing.
func (b *bench) refused(name string, slots int) string {
	if !b.on.gpu() {
		return "it needs a GPU"
	}
	strategy, err := sharing.Find(name)
	if err != nil {
		return err.Error()
	}
	var why []string
	for _, problem := range strategy.Check(sharing.Use{Slots: slots, PerSlot: 1, Devices: []gpu.Device{b.on.device}}) {
		why = append(why, problem.Text)
	}
	return strings.Join(why, "; ")
}

// excuse takes in that a worker does not start with a pool: only time slices with a single slot is what nothing can do without.
func (b *bench) excuse(ctx context.Context, at seat, err error) error {
	if ctx.Err() != nil || at.sharing == timeSliced && at.clients() == 1 {
		return err
	}
	b.lacks(at.sharing, fmt.Sprintf("with %s: %v", plural(at.clients(), "client"), err))
	return nil
}

// lacks names a way to share that is not measured, once per reason.
func (b *bench) lacks(name, why string) {
	if one := (Unmeasured{name, why}); !slices.Contains(b.report.Unmeasured, one) {
		b.report.Unmeasured = append(b.report.Unmeasured, one)
	}
}

package memory

import (
	"runtime"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/workers/slot/session"
)

// A reserveShare of the host's memory, between leastReserve and mostReserve, is kept free of task processes: below that the kernel
// would soon choose what to end, and may choose anything.
const (
	reserveShare = 16
	leastReserve = 256 << 20
	mostReserve  = 2 << 30
)

// hostMemory reads the host's memory, or that of the worker's container. Nil where what is free cannot be told from what could be had.
func hostMemory(inventory *gpu.Inventory) func() (gpu.Memory, error) {
	if runtime.GOOS != "linux" {
		return nil
	}
	return func() (gpu.Memory, error) {
		status, err := inventory.Status(gpu.CPU)
		return status.Memory, err
	}
}

// relieve ends the task process that holds most when the host runs out of memory, whatever its device, and reports whether that is
// near. One that holds less than the reserve is not what the host lacks. The caller holds the lock.
func (w *watch) relieve() (near bool) {
	if w.host == nil {
		return false
	}
	host, err := w.host()
	reserve := min(mostReserve, max(leastReserve, host.Total/reserveShare))
	if err != nil || host.Free >= 2*reserve {
		return false
	}
	if host.Free >= reserve {
		return true
	}
	var most *follower
	held := reserve
	for f := range w.follower {
		switch tree := w.census.Tree(f.pid); {
		case tree == nil || f.closed:
		case f.fired:
			return true // its memory is on its way back
		case tree.Sum() > held:
			most, held = f, tree.Sum()
		}
	}
	if most != nil {
		most.fired = true
		most.over(session.Over{Held: int64(held), Left: int64(host.Free)})
	}
	return true
}

package memory

import (
	"runtime"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/workers/slot/session"
)

// A reserveShare of the host's memory, between leastReserve and mostReserve, stays free of task processes: below that the kernel would
// soon kill any process of its choice.
const (
	reserveShare = 16
	leastReserve = 256 << 20
	mostReserve  = 2 << 30
)

// hostMemory reads the host's memory, or that of the worker's container. It is nil where the system does not tell what is available.
func hostMemory(inventory *gpu.Inventory) func() (gpu.Memory, error) {
	if runtime.GOOS != "linux" {
		return nil
	}
	return func() (gpu.Memory, error) {
		status, err := inventory.Status(gpu.CPU)
		return status.Memory, err
	}
}

// protectHost ends the largest task process when the host runs out of memory, whatever its device, and reports whether that is near. A
// process below the reserve is not to blame. The caller holds the lock.
func (w *watch) protectHost() (near bool) {
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
	var largest *watched
	held := reserve
	for f := range w.processes {
		switch tree := w.census.Tree(f.pid); {
		case tree == nil || f.closed:
		case f.ended:
			return true // its memory is soon free
		case tree.Sum() > held:
			largest, held = f, tree.Sum()
		}
	}
	if largest != nil {
		largest.ended = true
		// Left must not be 0: that would be a budget that was passed.
		largest.over(session.Over{Held: int64(held), Left: max(1, int64(host.Free))})
	}
	return true
}

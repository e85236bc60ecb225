package memory

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/session"
)

// ReserveVariable has the host's memory that stays free of task processes, such as 4GiB,
// or 0, for hosts that tell less available memory than they have.
const ReserveVariable = "GPUMUX_HOST_RESERVE"

// Where ReserveVariable does not say it, a reserveShare of the host's memory, between
// minReserve and maxReserve, stays free of task processes: below that the kernel would
// soon kill any process of its choice.
const (
	reserveShare = 16
	minReserve   = 256 << 20
	maxReserve   = 2 << 30
)

// guardHost lets the watch protect the host. Call it before run.
func (w *watch) guardHost(inventory *gpu.Inventory) error {
	if runtime.GOOS == "linux" {
		w.host = func() (gpu.Memory, error) {
			status, err := inventory.Status(gpu.CPU)
			return status.Memory, err
		}
	}
	text := os.Getenv(ReserveVariable)
	if text == "" {
		return nil
	}
	reserve, err := gpumux.ParseSize(text)
	if err != nil {
		return fmt.Errorf("%s: %w, and 0 for none", ReserveVariable, err)
	}
	if w.reserve = uint64(reserve); reserve == 0 {
		w.host = nil
	}
	return nil
}

// protectHost ends the largest task process when the host runs out of memory, and reports
// whether that is near. It spares processes smaller than the reserve. The caller holds
// the lock.
func (w *watch) protectHost() (near bool) {
	if w.host == nil {
		return false
	}
	host, err := w.host()
	reserve := cmp.Or(w.reserve, min(maxReserve, max(minReserve, host.Total/reserveShare)))
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
		// Left 0 would mean that a budget was passed.
		largest.over(session.Over{Held: int64(held), Left: max(1, int64(host.Free))})
	}
	return true
}

const (
	// foreignEvery is the least pause between two readings of a GPU that no slot uses.
	foreignEvery = 2 * time.Second
	// foreignMin is the most that a process may hold on another GPU than its slot's:
	// graphics drivers take a few MiB, the smallest CUDA context some 80.
	foreignMin = 32 << 20
)

// lookForForeign lets the watch look for processes on GPUs that are not their slot's.
// Call it before run. A GPU in MIG mode lists the processes of its instances, so it is
// left out.
func (w *watch) lookForForeign(gpus []gpu.Device) {
	w.gpus = map[string]gpu.Device{}
	for _, d := range gpus {
		w.gpus[d.UUID] = d
		w.readings[d.UUID] = &reading{}
	}
}

// endForeign ends the processes whose trees hold memory on a device that is not their
// slot's, as a reading has just shown. The caller holds the lock.
func (w *watch) endForeign(uuid string, held map[int]uint64) {
	device, known := w.gpus[uuid]
	if !known || len(held) == 0 {
		return
	}
	for f := range w.processes {
		tree := w.census.Tree(f.pid)
		if tree == nil || f.ended || slices.Contains(f.uuids, uuid) {
			continue
		}
		var sum uint64
		for pid := range tree.Resident {
			sum += held[pid]
		}
		if sum > foreignMin {
			f.ended = true
			f.over(session.Over{Held: int64(sum), Foreign: device.String()})
		}
	}
}

package memory

import (
	"fmt"
	"slices"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/workers/config"
)

const othersShare = 16

// Others describes what processes of others hold on a group's devices, if it is much.
// full: they leave less than the budget of one slot of the pool. Both are unknown where
// the driver does not report this worker's own processes.
func (e *Enforcer) Others(pool string, in config.Group) (text string, full bool) {
	at := slices.IndexFunc(e.placements, func(p config.Placement) bool { return p.Name == pool })
	if at < 0 {
		return "", false
	}
	budget := uint64(e.placements[at].Memory) / uint64(e.placements[at].GPUsPerSlot)
	for _, d := range in.Devices {
		status, err := e.devices.Status(d.UUID)
		ours, known := e.watch.ours(d.UUID)
		if err != nil || !known || status.Processes == nil {
			continue
		}
		now := status.Memory
		held := now.Held()
		var others []gpu.Process
		for _, p := range status.Processes {
			if ours[p.PID] {
				held -= min(held, p.Memory)
			} else {
				others = append(others, p)
			}
		}
		short := now.Total-now.Reserved < held+budget && budget > 0
		if short || held > 0 && held >= now.Total/othersShare {
			text, full = fmt.Sprintf("others hold %s of GPU %s%s", gpumux.Size(held), d.Selector(), gpu.Largest(others)), short
		}
		if full {
			return fmt.Sprintf("%s and leave less than the budget of a slot, %s", text, gpumux.Size(budget)), true
		}
	}
	return text, false
}

// ours are the numbers of this worker's task processes and their descendants, and whether
// the driver tells what they hold on the device.
func (w *watch) ours(uuid string) (pids map[int]bool, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.sees(uuid) || w.census.Round() != nil {
		return nil, false
	}
	pids = map[int]bool{}
	for f := range w.processes {
		if tree := w.census.Tree(f.pid); tree != nil {
			for pid := range tree.Resident {
				pids[pid] = true
			}
		}
	}
	return pids, true
}

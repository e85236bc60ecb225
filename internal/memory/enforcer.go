// Package memory owns the memory budgets of one worker's task processes: an Enforcer
// measures them, ends those over budget, and has the kernel and the frameworks limit
// them. It never divides devices, and never decides what follows the end of a process. It
// stops when the context of Run ends.
package memory

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/notice"
	"github.com/gpumux/gpumux/internal/sharing"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/wire"
	"github.com/gpumux/gpumux/workers/config"
)

// Enforcer keeps a worker's task processes within their budgets, for any goroutine.
type Enforcer struct {
	placements []config.Placement
	devices    *gpu.Inventory
	notices    *notice.List
	log        *zap.Logger
	watch      *watch

	mu     sync.Mutex
	capped map[[3]string]bool // pool, task, framework: what was logged
}

// New makes the enforcer of these pools and devices; its error is what ReserveVariable
// has that is no size. Call Run next, and Report after Tried.
func New(placements []config.Placement, devices *gpu.Inventory, notices *notice.List, log *zap.Logger) (*Enforcer, error) {
	e := &Enforcer{placements: placements, devices: devices, notices: notices, log: log, capped: map[[3]string]bool{}}
	e.watch = newWatch(devices, log)
	e.watch.notices = notices
	e.watch.lookForForeign(devices.GPUs())
	return e, e.watch.guardHost(devices)
}

// Run measures processes, and ends those over their budget, until ctx ends.
func (e *Enforcer) Run(ctx context.Context) { e.watch.run(ctx) }

// Confine adds the means of the pool to the options of a slot.
func (e *Enforcer) Confine(o *slot.Options, pool string) {
	o.Watch = e.watch
	o.Capped = func(task string, limit wire.Cap) { e.logCap(pool, task, limit) }
}

func (e *Enforcer) logCap(pool, task string, limit wire.Cap) {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := [3]string{pool, task, limit.Framework + limit.Error}
	if e.capped[key] {
		return
	}
	e.capped[key] = true
	about := []zap.Field{zap.String("pool", pool), zap.String("task", task), zap.String("framework", limit.Framework)}
	if limit.Error == "" {
		e.log.Info("the framework's own limit was tried and holds", about...)
		return
	}
	e.notices.Warn(e.log, "a framework does not keep to the slot's memory by itself; the other means do, or nothing", append(about, zap.String("why", limit.Error))...)
}

// Means keep the slots of a pool within their budget: strongest first, for people.
func (e *Enforcer) Means(pool string) (means []string) {
	at := slices.IndexFunc(e.placements, func(p config.Placement) bool { return p.Name == pool })
	if at < 0 || e.placements[at].Memory == 0 {
		return nil
	}
	p := e.placements[at]
	if p.Groups[0].Devices[0].Kind != gpu.KindCPU {
		if p.Instances() {
			means = append(means, "MIG")
		}
		if sharing.Mode(p.Sharing) == sharing.MPS {
			means = append(means, "MPS")
		}
		means = append(means, "framework caps")
		if slices.ContainsFunc(devices(p), func(d gpu.Device) bool { return !e.watch.tells(d.UUID) }) {
			return means
		}
	}
	return append(means, fmt.Sprintf("watch every %s", watchNear))
}

func devices(p config.Placement) []gpu.Device { return config.Devices([]config.Placement{p}) }

// Tried records whether the driver reported the memory of a process that certainly used a
// device, a probe's. If it did not, no budget is watched there.
func (e *Enforcer) Tried(uuid string, seen bool) {
	e.watch.mu.Lock()
	defer e.watch.mu.Unlock()
	if before, tried := e.watch.probed[uuid]; !tried || before {
		e.watch.probed[uuid] = seen
	}
}

// Report tells the operator what keeps each pool within its budget, and what others hold
// on its devices.
func (e *Enforcer) Report() {
	for _, p := range e.placements {
		if p.Memory > 0 {
			means := e.Means(p.Name)
			e.log.Info(fmt.Sprintf("budget %s enforced by: %s", p.Memory, strings.Join(means, ", ")), zap.String("pool", p.Name))
		}
		for _, d := range devices(p) {
			if p.Memory > 0 && d.Kind != gpu.KindCPU && !e.watch.tells(d.UUID) {
				e.notices.Warn(e.log, fmt.Sprintf("the driver does not tell what processes hold on %s: a task that allocates past its framework "+
					"takes from its neighbours, and no item has a peak", d), zap.String("pool", p.Name), zap.String("advice",
					"start the container with the host's process numbers (docker run --pid=host, hostPID: true in Kubernetes), or install driver "+
						"565.57 or newer; in a sandbox such as gVisor only a worker outside of it sees that"))
			}
		}
		for _, g := range p.Groups {
			if text, _ := e.Others(p.Name, g); text != "" {
				e.notices.Warn(e.log, text, zap.String("pool", p.Name), zap.String("advice",
					"end what else uses it, lower memory or slots, or choose devices, of which free are those with room"))
			}
		}
	}
}

// Room is how many bytes of a budget each device has for a framework's allocations; 0: no
// limit. A framework must meet its limit before the watch ends the process.
func Room(p config.Pool, g config.Group) gpumux.Size {
	if p.Memory == 0 || g.Devices[0].Kind == gpu.KindCPU {
		return 0
	}
	return gpumux.Room(p.Memory / gpumux.Size(p.GPUsPerSlot))
}

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

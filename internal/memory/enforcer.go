// Package memory owns the memory budgets of one worker's task processes: an Enforcer
// measures them, ends those over budget, has the kernel and the frameworks limit them,
// and proves what it relies on. It never divides devices, and never decides what follows
// the end of a process. It stops when the context of Run ends.
package memory

import (
	"context"
	"sync"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/notice"
	"github.com/gpumux/gpumux/internal/session"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/workers/config"
)

// Enforcer keeps a worker's task processes within their budgets, for any goroutine.
type Enforcer struct {
	placements []config.Placement
	devices    *gpu.Inventory
	notices    *notice.List
	log        *zap.Logger
	watch      *watch
	allowances *allowances

	mu       sync.RWMutex     // guards what follows
	enforced map[string]means // by pool, set by Report
}

// New makes the enforcer of these pools and devices; its error is what ReserveVariable
// has that is no size. Call Run next, and Report after Tried.
func New(placements []config.Placement, devices *gpu.Inventory, notices *notice.List, log *zap.Logger) (*Enforcer, error) {
	e := &Enforcer{
		placements: placements, devices: devices, notices: notices, log: log, allowances: newAllowances(log), enforced: map[string]means{},
	}
	e.watch = newWatch(devices, devices.OurPIDs(), log)
	e.watch.notices, e.allowances.notices = notices, notices
	e.watch.lookForForeign(devices.GPUs())
	return e, e.watch.guardHost(devices)
}

// Run measures processes, and ends those over their budget, until ctx ends.
func (e *Enforcer) Run(ctx context.Context) { e.watch.run(ctx) }

// Confine adds the means of the pool to the options of a slot.
func (e *Enforcer) Confine(o *slot.Options, p config.Placement, g config.Group) {
	model := Model(g.Devices[0])
	o.Watch = e.watch
	o.Capped = func(c session.Cap) {
		e.allowances.capped(p.Name, model, len(g.Devices), c)
		if c.Unseen {
			for _, d := range g.Devices {
				e.Tried(d.UUID, false)
			}
		}
	}
}

// Allowance is the memory of a task's process on a device beside its data; 0: unknown.
func (e *Enforcer) Allowance(model, task string) gpumux.Size { return e.allowances.get(model, task) }

// Means keep the slots of a pool within their budget: strongest first, for people.
func (e *Enforcer) Means(pool string) []string {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.enforced[pool].list
}

// Model is the key of allowances: the name of a GPU, or the CPU's UUID.
func Model(d gpu.Device) string {
	if d.Kind == gpu.KindCPU {
		return gpu.CPU
	}
	return d.Name
}

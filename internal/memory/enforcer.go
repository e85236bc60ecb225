// Package memory owns the memory budgets of one worker's task processes: an Enforcer measures the processes, ends those over their
// budget, has the kernel limit them where it can, sets the frameworks' own caps, and proves what it relies on. It never divides devices
// among slots, and never decides what follows the end of a process: the slot does. It stops when the context of Run ends.
package memory

import (
	"context"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/logkey"
	"github.com/gpumux/gpumux/internal/process"
	"github.com/gpumux/gpumux/internal/session"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/workers/config"
)

// Enforcer keeps the task processes of one worker within the budgets of its pools. Its methods may be called from any goroutine.
type Enforcer struct {
	placements []config.Placement
	devices    *gpu.Inventory
	log        *zap.Logger
	// hostPIDs says that the driver's process numbers are this namespace's.
	hostPIDs   bool
	watch      *watch
	cgroups    *process.Cgroups // nil where there are none
	allowances *allowances

	mu       sync.RWMutex     // guards what follows
	enforced map[string]means // by pool
	unseen   map[string]bool  // devices whose processes the driver does not list
}

// New is for the pools on these devices. Call Run and Report next.
func New(placements []config.Placement, devices *gpu.Inventory, log *zap.Logger) *Enforcer {
	e := &Enforcer{
		placements: placements, devices: devices, log: log, hostPIDs: devices.OurPIDs(), allowances: newAllowances(log),
		enforced: map[string]means{}, unseen: map[string]bool{},
	}
	e.watch = newWatch(devices, e.hostPIDs, log)
	e.watch.host = hostMemory(devices)
	e.watch.lookForForeign(devices.GPUs())
	if e.budgetsOnCPU() {
		var err error
		if e.cgroups, err = process.OpenCgroups(); err != nil {
			log.Debug("task processes get no cgroups of their own", zap.String(logkey.Why, err.Error()))
		}
	}
	return e
}

// Run measures processes, and ends those over their budget, until ctx ends.
func (e *Enforcer) Run(ctx context.Context) { e.watch.run(ctx) }

// Confine adds the means of the pool to the options of a slot.
func (e *Enforcer) Confine(o *slot.Options, p config.Placement, g config.Group) {
	model := Model(g.Devices[0])
	o.Watch, o.Cgroups = e.watch, e.cgroups
	o.Loaded = func(task string, bytes int64) { e.allowances.loaded(p.Pool, task, bytes) }
	o.Capped = func(c session.Cap) {
		e.allowances.capped(p.Name, model, len(g.Devices), c)
		if c.Unseen {
			e.setUnlisted(g)
		}
	}
}

// Allowance is the memory of a task's process on one device of the model beside its data, in bytes; 0 before it was measured.
func (e *Enforcer) Allowance(model, task string) gpumux.Size { return e.allowances.get(model, task) }

// Means is what keeps the slots of a pool within their budget: strongest first, as text for people.
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

// onCPU reports whether the pool's slots have a budget of the host's memory.
func onCPU(p config.Placement) bool {
	return p.Memory > 0 && p.Groups[0].Devices[0].Kind == gpu.KindCPU
}

func (e *Enforcer) budgetsOnCPU() bool { return slices.ContainsFunc(e.placements, onCPU) }

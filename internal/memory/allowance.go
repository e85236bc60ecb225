package memory

import (
	"fmt"
	"sync"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/notice"
	"github.com/gpumux/gpumux/internal/session"
	"github.com/gpumux/gpumux/workers/config"
)

// allowances are the measured memory that a process holds beside its data, by model of
// GPU and task: the CUDA context, code and workspaces.
type allowances struct {
	notices *notice.List
	log     *zap.Logger

	mu       sync.Mutex
	measured map[allowanceKey]gpumux.Size
	logged   map[string]bool
}

type allowanceKey struct{ model, task string }

func newAllowances(log *zap.Logger) *allowances {
	return &allowances{log: log, measured: map[allowanceKey]gpumux.Size{}, logged: map[string]bool{}}
}

// get is the allowance of a task's process on a device of the model; 0: not measured.
func (a *allowances) get(model, task string) gpumux.Size {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.measured[allowanceKey{model, task}]
}

// capped records whether a framework keeps to its limit in a slot with this many devices.
func (a *allowances) capped(pool, model string, devices int, c session.Cap) {
	if c.Context > 0 {
		a.beside(pool, model, devices, c.Task, c.Context)
	}
	if !a.first(pool, c.Task, c.Framework+c.Error) {
		return
	}
	about := []zap.Field{zap.String("pool", pool), zap.String("task", c.Task), zap.String("framework", c.Framework)}
	if c.Error != "" {
		a.notices.Warn(a.log, "a framework does not keep to the slot's memory by itself; the other means do, or nothing", append(about, zap.String("why", c.Error))...)
		return
	}
	if c.Context > 0 {
		about = append(about, zap.Stringer("context", gpumux.Size(c.Context)))
	}
	a.log.Info("the framework's own limit was tried and holds", about...)
}

// beside records what a process holds outside its frameworks' allocators, in a slot with
// this many devices: when CUDA starts, and later, when libraries have loaded more.
func (a *allowances) beside(pool, model string, devices int, task string, bytes int64) {
	if a.set(model, task, gpumux.Size(bytes)/gpumux.Size(devices)) {
		a.log.Debug("what processes of a task take beside their frameworks' allocators", zap.String("pool", pool),
			zap.String("task", task), zap.Stringer("context", gpumux.Size(bytes)))
	}
}

// first reports whether these words have not been logged yet.
func (a *allowances) first(words ...string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := fmt.Sprint(words)
	was := a.logged[key]
	a.logged[key] = true
	return !was
}

// set records a measurement and reports whether the allowance changed. Growth below an
// eighth is ignored, so that templates keep their environment. The allowance never
// shrinks: other processes may have loaded more.
func (a *allowances) set(model, task string, now gpumux.Size) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := allowanceKey{model, task}
	before := a.measured[key]
	if now-before <= before/8 {
		return false
	}
	a.measured[key] = now
	return true
}

// Room is how many bytes of a budget each device has for a framework's allocations; 0: no
// limit. A framework must meet its limit before the watch ends the process. So Room
// leaves a quarter more than the measured allowance, for code that is loaded later.
func Room(p config.Pool, g config.Group, allowance gpumux.Size) gpumux.Size {
	if p.Memory == 0 || g.Devices[0].Kind == gpu.KindCPU {
		return 0
	}
	budget := p.Memory / gpumux.Size(p.GPUsPerSlot)
	if allowance > 0 {
		return max(budget/4, budget-allowance-allowance/4)
	}
	return gpumux.Room(budget)
}

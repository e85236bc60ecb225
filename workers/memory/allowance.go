package memory

import (
	"fmt"
	"sync"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/logkey"
	"github.com/gpumux/gpumux/workers/config"
	"github.com/gpumux/gpumux/workers/slot/session"
)

// allowances are the measured memory of a process beside its data, for each model of device and each task: on a GPU the CUDA context,
// code and workspaces, on the CPU the idle process with the task loaded.
type allowances struct {
	log *zap.Logger

	mu       sync.Mutex
	measured map[allowanceKey]gpumux.Size
	logged   map[string]bool
}

type allowanceKey struct{ model, task string }

func newAllowances(log *zap.Logger) *allowances {
	return &allowances{log: log, measured: map[allowanceKey]gpumux.Size{}, logged: map[string]bool{}}
}

// get is the allowance of a task's process on one device of the model, 0 before it was measured.
func (a *allowances) get(model, task string) gpumux.Size {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.measured[allowanceKey{model, task}]
}

// loaded observes the idle process of a task.
func (a *allowances) loaded(pool config.Pool, model, task string, bytes int64) {
	if bytes <= 0 {
		return
	}
	if model == gpu.CPU {
		a.set(model, task, gpumux.Size(bytes))
	}
	if size := gpumux.Size(bytes); size > pool.Memory*3/4 && a.first(pool.Name, task, "loaded") {
		a.log.Warn(fmt.Sprintf("the loaded task holds %s of its budget of %s before any item; little is left for data", size, pool.Memory),
			zap.String(logkey.Pool, pool.Name), zap.String(logkey.Task, task))
	}
}

// capped observes a framework's own limit in a slot of so many devices.
func (a *allowances) capped(pool, model string, devices int, c session.Cap) {
	if c.Context > 0 {
		a.beside(pool, model, devices, c.Task, c.Context)
	}
	if !a.first(pool, c.Task, c.Framework+c.Error) {
		return
	}
	log := a.log.With(zap.String(logkey.Pool, pool), zap.String(logkey.Task, c.Task), zap.String("framework", c.Framework))
	if c.Error != "" {
		log.Warn("a framework does not keep to the slot's memory by itself; the other means do, or nothing", zap.String(logkey.Why, c.Error))
		return
	}
	if c.Context > 0 {
		log = log.With(zap.Stringer("context", gpumux.Size(c.Context)))
	}
	log.Info("the framework's own limit was tried and holds")
}

// beside observes what a process holds beside its frameworks' allocators, in a slot of so many devices: at CUDA's start, and later, when
// libraries have loaded more.
func (a *allowances) beside(pool, model string, devices int, task string, bytes int64) {
	if a.set(model, task, gpumux.Size(bytes)/gpumux.Size(devices)) {
		a.log.Debug("what processes of a task take beside their frameworks' allocators", zap.String(logkey.Pool, pool),
			zap.String(logkey.Task, task), zap.Stringer("context", gpumux.Size(bytes)))
	}
}

// first reports whether this is to be logged for the first time.
func (a *allowances) first(words ...string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := fmt.Sprint(words)
	was := a.logged[key]
	a.logged[key] = true
	return !was
}

// set records a measurement, and reports whether it changes something. One that differs by less than an eighth does not, so that
// templates keep their environment. On a GPU the allowance only grows: a process that has loaded less so far says nothing of the others.
func (a *allowances) set(model, task string, now gpumux.Size) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := allowanceKey{model, task}
	before := a.measured[key]
	change := now - before
	if model == gpu.CPU {
		change = max(change, -change)
	}
	if change <= before/8 {
		return false
	}
	a.measured[key] = now
	return true
}

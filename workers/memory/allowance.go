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

// allowances are what this worker measured, for each model of device and each task, that a process takes beside its data: on a GPU
// the CUDA context, code and workspaces, on the CPU what the idle process holds once the task is loaded.
type allowances struct {
	log *zap.Logger

	mu    sync.Mutex
	known map[taken]gpumux.Size
	told  map[string]bool
}

// taken is what an allowance is of.
type taken struct{ model, task string }

func newAllowances(log *zap.Logger) *allowances {
	return &allowances{log: log, known: map[taken]gpumux.Size{}, told: map[string]bool{}}
}

// of is what a process of the task takes on one device of the model, 0 before it was measured.
func (a *allowances) of(model, task string) gpumux.Size {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known[taken{model, task}]
}

// loaded takes in what the idle process of a task holds.
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

// capped takes in what a framework's own limit came to in a slot of so many devices.
func (a *allowances) capped(pool, model string, devices int, c session.Cap) {
	if c.Context > 0 {
		a.set(model, c.Task, gpumux.Size(c.Context)/gpumux.Size(devices))
	}
	fields := []zap.Field{zap.String(logkey.Pool, pool), zap.String(logkey.Task, c.Task), zap.String("framework", c.Framework)}
	switch {
	case !a.first(pool, c.Task, c.Framework+c.Error):
	case c.Error != "":
		a.log.Warn("a framework does not keep to the slot's memory by itself; the other means do, or nothing", append(fields, zap.String(logkey.Why, c.Error))...)
	case c.Context > 0:
		a.log.Info("the framework's own limit was tried and holds", append(fields, zap.Stringer("context", gpumux.Size(c.Context)))...)
	default:
		a.log.Info("the framework's own limit was tried and holds", fields...)
	}
}

// first reports whether this is said for the first time.
func (a *allowances) first(words ...string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := fmt.Sprint(words)
	was := a.told[key]
	a.told[key] = true
	return !was
}

// set takes in a measurement. One that differs by less than an eighth changes nothing, so that processes are not limited anew for it.
func (a *allowances) set(model, task string, now gpumux.Size) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.known[taken{model, task}]
	if max(now-before, before-now) > before/8 {
		a.known[taken{model, task}] = now
	}
}

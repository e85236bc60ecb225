package workers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/workers/slot"
)

// allowances remember, for each model of device and each task, what its process takes beside its data: on a GPU the CUDA context,
// code and workspaces, on the CPU what the idle process holds once the task is loaded. They outlive the worker in a file.
type allowances struct {
	// file is empty where nothing can be kept.
	file string
	log  *zap.Logger

	mu    sync.Mutex
	known map[string]map[string]allowance // by model and task
	told  map[string]bool
}

type allowance struct {
	Bytes gpumux.Size `json:"bytes,omitempty"`
	// Broken are the frameworks whose own limit does not hold, with the reason.
	Broken map[string]string `json:"broken,omitempty"`
}

// openAllowances reads what earlier workers kept in the folder; "" is none.
func openAllowances(dir string, log *zap.Logger) *allowances {
	a := &allowances{log: log, known: map[string]map[string]allowance{}, told: map[string]bool{}}
	if dir == "" {
		return a
	}
	a.file = filepath.Join(dir, "allowances.json")
	data, err := os.ReadFile(a.file)
	if err == nil {
		err = json.Unmarshal(data, &a.known)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("what earlier workers measured cannot be read; it is measured anew", zap.Error(err))
		a.known = map[string]map[string]allowance{}
	}
	return a
}

// model is what allowances go by.
func model(d gpu.Device) string {
	if d.Kind == gpu.KindCPU {
		return gpu.CPU
	}
	return d.Name
}

// of is what a process of the task takes on one device of the model, 0 where nobody has measured it.
func (a *allowances) of(model, task string) gpumux.Size {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known[model][task].Bytes
}

// most is the task that takes the most on a model, among the tasks that a worker runs.
func (a *allowances) most(model string, tasks []string) (task string, bytes gpumux.Size) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, each := range tasks {
		if n := a.known[model][each].Bytes; n > bytes {
			task, bytes = each, n
		}
	}
	return task, bytes
}

// broken are the frameworks whose own limit is known not to hold on a model, sorted.
func (a *allowances) broken(model string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	names := map[string]bool{}
	for _, each := range a.known[model] {
		for name := range each.Broken {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// loaded takes in what the idle process of a task holds.
func (a *allowances) loaded(pool PoolConfig, model, task string, bytes int64) {
	if bytes <= 0 {
		return
	}
	if model == gpu.CPU {
		a.set(model, task, func(known *allowance) { known.Bytes = settled(known.Bytes, gpumux.Size(bytes)) })
	}
	if size := gpumux.Size(bytes); size > pool.Memory*3/4 && a.first(pool.Name, task, "loaded") {
		a.log.Warn(fmt.Sprintf("the loaded task holds %s of its budget of %s before any item; little is left for data", size, pool.Memory),
			zap.String(logPool, pool.Name), zap.String(logTask, task))
	}
}

// capped takes in what a framework's own limit came to in a slot of so many devices.
func (a *allowances) capped(pool, model string, devices int, c slot.Cap) {
	a.set(model, c.Task, func(known *allowance) {
		if c.Context > 0 {
			known.Bytes = settled(known.Bytes, gpumux.Size(c.Context)/gpumux.Size(devices))
		}
		known.Broken = maps.Clone(known.Broken)
		delete(known.Broken, c.Framework)
		if c.Error != "" {
			if known.Broken == nil {
				known.Broken = map[string]string{}
			}
			known.Broken[c.Framework] = c.Error
		}
	})
	fields := []zap.Field{zap.String(logPool, pool), zap.String(logTask, c.Task), zap.String("framework", c.Framework)}
	switch {
	case !a.first(pool, c.Task, c.Framework+c.Error):
	case c.Error != "":
		a.log.Warn("a framework does not keep to the slot's memory by itself; the other means do, or nothing", append(fields, zap.String(logWhy, c.Error))...)
	case c.Context > 0:
		a.log.Info("the framework's own limit was tried and holds", append(fields, zap.Stringer("context", gpumux.Size(c.Context)))...)
	default:
		a.log.Info("the framework's own limit was tried and holds", fields...)
	}
}

// settled keeps the old size while the new one differs by less than an eighth.
func settled(before, now gpumux.Size) gpumux.Size {
	if difference := max(now-before, before-now); difference <= before/8 {
		return before
	}
	return now
}

// first says whether this is said for the first time.
func (a *allowances) first(words ...string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := fmt.Sprint(words)
	was := a.told[key]
	a.told[key] = true
	return !was
}

// set changes what is known and keeps it.
func (a *allowances) set(model, task string, change func(*allowance)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.known[model][task]
	now := before
	change(&now)
	if now.Bytes == before.Bytes && maps.Equal(now.Broken, before.Broken) {
		return
	}
	if a.known[model] == nil {
		a.known[model] = map[string]allowance{}
	}
	a.known[model][task] = now
	if a.file == "" {
		return
	}
	if err := a.keep(); err != nil {
		a.log.Warn("what was measured of a task is not kept for the next worker", zap.Error(err))
		a.file = ""
	}
}

// keep writes the file, whole or not at all; the caller holds the lock.
func (a *allowances) keep() error {
	data, err := json.MarshalIndent(a.known, "", "  ")
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(a.file), ".allowances-")
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), a.file)
	}
	if err != nil {
		os.Remove(file.Name())
	}
	return err
}

package workers

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/workers/slot"
)

// allowances remember, for each model of device and each task, what its process takes beside its data: on a GPU the CUDA context,
// code and workspaces, on the CPU what the idle process holds once the task is loaded. They outlive the worker in a file that the
// workers of a user share.
type allowances struct {
	// file is empty where nothing can be kept.
	file  string
	tasks *catalog // of the worker
	log   *zap.Logger
	now   func() time.Time

	mu    sync.Mutex
	known figures
	ids   map[string]string // of tasks, by name
	told  map[string]bool
}

const (
	// allowanceAge is how long what was measured is kept after it was last seen, allowanceFresh how old a sight may get before
	// another is noted.
	allowanceAge   = 90 * 24 * time.Hour
	allowanceFresh = 24 * time.Hour
)

// figures are by model and by what identifies a task.
type figures map[string]map[string]allowance

type allowance struct {
	Bytes gpumux.Size `json:"bytes,omitempty"`
	// Seen is when that was measured last.
	Seen time.Time `json:"seen"`
	// Broken are the frameworks whose own limit does not hold, with the reason.
	Broken map[string]string `json:"broken,omitempty"`
}

// openAllowances reads what earlier workers kept in the folder; "" is none.
func openAllowances(dir string, tasks *catalog, log *zap.Logger) *allowances {
	a := &allowances{tasks: tasks, log: log, now: time.Now, known: figures{}, ids: map[string]string{}, told: map[string]bool{}}
	if dir == "" {
		return a
	}
	a.file = filepath.Join(dir, "allowances.json")
	if err := a.merge(); err != nil {
		log.Warn("what earlier workers measured cannot be read; it is measured anew", zap.Error(err))
	}
	return a
}

// merge takes over what the file has that is not known here or was seen later, and drops what is old; the caller holds the lock,
// or nobody else knows of a.
func (a *allowances) merge() error {
	data, err := os.ReadFile(a.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var kept figures
	if err == nil {
		err = json.Unmarshal(data, &kept)
	}
	if err != nil {
		return err
	}
	for model, tasks := range kept {
		for id, each := range tasks {
			if each.Seen.After(a.known[model][id].Seen) {
				a.known.put(model, id, each)
			}
		}
	}
	for model, tasks := range a.known {
		maps.DeleteFunc(tasks, func(_ string, each allowance) bool { return a.now().Sub(each.Seen) > allowanceAge })
		if len(tasks) == 0 {
			delete(a.known, model)
		}
	}
	return nil
}

func (f figures) put(model, id string, one allowance) {
	if f[model] == nil {
		f[model] = map[string]allowance{}
	}
	f[model][id] = one
}

// id tells a task from those of other projects that have the same name: by what is run, and where. The caller holds the lock.
func (a *allowances) id(name string) string {
	if id, ok := a.ids[name]; ok {
		return id
	}
	task, err := a.tasks.find(name)
	if err != nil {
		return name
	}
	target := cmp.Or(task.Python, strings.Join(task.Command, " "), strings.Join(task.Program, " "))
	a.ids[name] = fmt.Sprintf("%s: %s in %s", name, target, task.Dir)
	return a.ids[name]
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
	return a.known[model][a.id(task)].Bytes
}

// most is the task that takes the most on a model, among the tasks that a worker runs.
func (a *allowances) most(model string, tasks []string) (task string, bytes gpumux.Size) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, each := range tasks {
		if n := a.known[model][a.id(each)].Bytes; n > bytes {
			task, bytes = each, n
		}
	}
	return task, bytes
}

// broken are the frameworks whose own limit is known not to hold on a model in one of the tasks, sorted.
func (a *allowances) broken(model string, tasks []string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	names := map[string]bool{}
	for _, each := range tasks {
		for name := range a.known[model][a.id(each)].Broken {
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
	id := a.id(task)
	before := a.known[model][id]
	now := before
	change(&now)
	same := now.Bytes == before.Bytes && maps.Equal(now.Broken, before.Broken)
	if same && (before.Seen.IsZero() || a.now().Sub(before.Seen) < allowanceFresh) {
		return
	}
	now.Seen = a.now()
	a.known.put(model, id, now)
	if a.file == "" {
		return
	}
	if err := a.keep(); err != nil {
		a.log.Warn("what was measured of a task is not kept for the next worker", zap.Error(err))
		a.file = ""
	}
}

// keep writes the file, whole or not at all, with what other workers wrote meanwhile; what one writes at the very same moment is
// measured again. The caller holds the lock.
func (a *allowances) keep() error {
	if err := a.merge(); err != nil {
		a.log.Warn("what other workers measured cannot be read and is written over", zap.Error(err))
	}
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

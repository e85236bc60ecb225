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

	mu    sync.Mutex // never held while a disk is asked
	known figures
	ids   map[string]string // of tasks, by name
	told  map[string]bool
	// unkept says that something is known which no write has taken up; writing is closed when nothing is written any more.
	unkept  bool
	writing chan struct{}
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
	kept, err := readFigures(a.file)
	if err != nil {
		log.Warn("what earlier workers measured cannot be read; it is measured anew", zap.Error(err))
	}
	a.known.take(kept, a.now())
	return a
}

func readFigures(file string) (kept figures, err error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &kept)
	}
	return kept, err
}

// take takes over what others have that is not known here or was seen later, and drops what is old by now.
func (f figures) take(others figures, now time.Time) {
	for model, tasks := range others {
		for id, each := range tasks {
			if each.Seen.After(f[model][id].Seen) {
				f.put(model, id, each)
			}
		}
	}
	for model, tasks := range f {
		maps.DeleteFunc(tasks, func(_ string, each allowance) bool { return now.Sub(each.Seen) > allowanceAge })
		if len(tasks) == 0 {
			delete(f, model)
		}
	}
}

func (f figures) put(model, id string, one allowance) {
	if f[model] == nil {
		f[model] = map[string]allowance{}
	}
	f[model][id] = one
}

// id tells a task from those of other projects that have the same name: by what is run, and where. Finding a task may take a look
// at its folder.
func (a *allowances) id(name string) string {
	a.mu.Lock()
	id, ok := a.ids[name]
	a.mu.Unlock()
	if ok {
		return id
	}
	task, err := a.tasks.find(name)
	if err != nil {
		return name
	}
	target := cmp.Or(task.Python, strings.Join(task.Command, " "), strings.Join(task.Program, " "))
	id = fmt.Sprintf("%s: %s in %s", name, target, task.Dir)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ids[name] = id
	return id
}

// one is what is known of a task on a model.
func (a *allowances) one(model, task string) allowance {
	id := a.id(task)
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known[model][id]
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
	return a.one(model, task).Bytes
}

// most is the task that takes the most on a model, among the tasks that a worker runs.
func (a *allowances) most(model string, tasks []string) (task string, bytes gpumux.Size) {
	for _, each := range tasks {
		if n := a.of(model, each); n > bytes {
			task, bytes = each, n
		}
	}
	return task, bytes
}

// broken are the frameworks whose own limit is known not to hold on a model in one of the tasks, sorted.
func (a *allowances) broken(model string, tasks []string) []string {
	names := map[string]bool{}
	for _, each := range tasks {
		for name := range a.one(model, each).Broken {
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

// set changes what is known, and has it kept without waiting for that.
func (a *allowances) set(model, task string, change func(*allowance)) {
	id := a.id(task)
	a.mu.Lock()
	defer a.mu.Unlock()
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
	a.unkept = true
	if a.writing == nil {
		a.writing = make(chan struct{})
		go a.write()
	}
}

// write keeps what is known until nothing new is. It is one goroutine at most, and may wait for a disk as long as that takes.
func (a *allowances) write() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.unkept {
		a.unkept = false
		known, now := figures{}, a.now()
		known.take(a.known, now)
		a.mu.Unlock()
		err := a.keep(known, now)
		a.mu.Lock()
		// What other workers measured.
		a.known.take(known, now)
		if err != nil {
			a.log.Warn("what was measured of a task is not kept for the next worker", zap.Error(err))
			a.file, a.unkept = "", false
		}
	}
	close(a.writing)
	a.writing = nil
}

// settle waits until what is known is kept, or cannot be.
func (a *allowances) settle() {
	a.mu.Lock()
	writing := a.writing
	a.mu.Unlock()
	if writing != nil {
		<-writing
	}
}

// keep writes the file, whole or not at all, with what other workers wrote meanwhile, which known has then, too; what one writes at
// the very same moment is measured again.
func (a *allowances) keep(known figures, now time.Time) error {
	others, err := readFigures(a.file)
	if err != nil {
		a.log.Warn("what other workers measured cannot be read and is written over", zap.Error(err))
	}
	known.take(others, now)
	data, err := json.MarshalIndent(known, "", "  ")
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

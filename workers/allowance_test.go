package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/gpu/gputest"
	"github.com/gpumux/gpumux/workers/slot"
)

// torchPy is torch as far as its memory goes: a context that the driver sees, an allocator with a limit that holds or does not,
// and calls that wait for the start of CUDA.
const torchPy = `
import os, types
CONTEXT, TOTAL = 300 << 20, 80 << 30
waiting, fractions, held = [], [], [0]
limit = TOTAL
uint8 = "uint8"
class OutOfMemoryError(RuntimeError): pass
def driver():
    path = os.path.join(os.environ["DRIVER"], str(os.getpid()))
    with open(path + ".tmp", "w") as f: f.write("%s %d\n" % (os.environ["UUID"], CONTEXT + held[0]))
    os.rename(path + ".tmp", path)
class Block:
    def __init__(self, size): self.size = size; held[0] += size; driver()
    def __del__(self): held[0] -= self.size; driver()
def empty(size, dtype, device):
    if "HOLDS" in os.environ and held[0] + size > limit:
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate %d bytes." % size)
    return Block(size)
def fraction(share, index):
    global limit
    limit = share * TOTAL
    fractions.append(share)
def start():
    driver()
    while waiting: waiting.pop(0)()
cuda = types.SimpleNamespace(
    _lazy_call=waiting.append, start=start, device_count=lambda: 1, memory_reserved=lambda i: held[0], empty_cache=lambda: None,
    get_device_properties=lambda i: types.SimpleNamespace(total_memory=TOTAL), set_per_process_memory_fraction=fraction,
    is_initialized=lambda: True)
`

const torchTask = `
import torch
kept = torch.empty(1000 << 20, torch.uint8, "cuda:0") if %s else None
def takes(mb):
    torch.cuda.start()
    try:
        block = torch.empty(mb << 20, torch.uint8, "cuda:0")
    except torch.OutOfMemoryError:
        return ["refused", torch.fractions[-1] * torch.TOTAL]
    return ["taken", torch.fractions[-1] * torch.TOTAL]
`

// tasksIn are tasks of a folder's tasks.py.
func tasksIn(dir string, names ...string) *catalog {
	c := &catalog{exact: map[string]slot.Task{}}
	for _, name := range names {
		c.exact[name] = slot.Task{Name: name, Python: "tasks.py:" + name, Dir: dir}
	}
	return c
}

// cuda is a slot of 8 GiB on an imitated GPU, whose task uses the imitated torch.
type cuda struct {
	*workbench
	machine    *gputest.Machine
	inventory  *gpu.Inventory
	cap        slot.Cap // the last one
	allowances *allowances
	slot       *slot.Slot
	device     gpu.Device
}

func newCUDA(t *testing.T, holds, resident bool) *cuda {
	t.Helper()
	machine := gputest.New(t, gputest.State{GPUs: []gputest.GPU{{Total: 80 << 30, Free: 80 << 30}}})
	inventory, err := gpu.Open(gpu.Options{Library: machine.Library})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, inventory.Close()) })
	c := &cuda{workbench: newWorkbench(t, inventory, true), machine: machine, inventory: inventory, device: inventory.Devices()[0]}
	c.allowances = openAllowances(c.dir, tasksIn(c.dir, "takes"), c.to)
	c.env["DRIVER"], c.env["UUID"] = machine.File+".d", c.device.UUID
	if holds {
		c.env["HOLDS"] = "1"
	}
	kept := "False"
	if resident {
		kept = "True"
	}
	for name, text := range map[string]string{"torch.py": torchPy, "tasks.py": fmt.Sprintf(torchTask, kept)} {
		require.NoError(t, os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o644))
	}
	pool := PoolConfig{Name: "pool", Memory: 8 << 30}
	c.slot = c.workbench.slot(c.device.UUID, 8<<30, func(o *slot.Options) {
		o.Capped = func(cap slot.Cap) {
			c.cap = cap
			c.allowances.capped(pool.Name, model(c.device), 1, cap)
		}
		o.Loaded = func(task string, bytes int64) { c.allowances.loaded(pool, model(c.device), task, bytes) }
	})
	return c
}

// takes lets an item take so many MiB, and says how that went and what torch's limit was.
func (c *cuda) takes(t *testing.T, mb int) (how string, limit float64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	raw, err := json.Marshal(mb)
	require.NoError(t, err)
	call := slot.Call{
		Task: c.task("takes"), Context: int64(c.allowances.of(model(c.device), "takes")),
		Items: func(yield func(slot.Item, error) bool) { yield(slot.Item{Value: raw}, nil) },
		Done: func(d slot.Done) {
			require.Nil(t, d.Fault)
			require.NoError(t, json.Unmarshal(d.Value, &[]any{&how, &limit}))
		},
	}
	require.NoError(t, c.slot.Run(ctx, call))
	return how, limit
}

// A limit that holds is tried without taking anything; what the process holds beside the framework is measured and replaces the
// guess in the next process, also of the next worker.
func TestAllowance_OfATaskThatUsesCUDA(t *testing.T) {
	c := newCUDA(t, true, false)
	how, limit := c.takes(t, 7100)
	require.Equal(t, "taken", how)
	require.EqualValues(t, 8192-1024, limit/(1<<20), "nobody knows better yet")
	lines := c.log.FilterMessage("the framework's own limit was tried and holds").All()
	require.Len(t, lines, 1)
	require.Equal(t, "300MiB", lines[0].ContextMap()["context"])
	require.Equal(t, "torch", lines[0].ContextMap()["framework"])
	require.EqualValues(t, 300<<20, c.allowances.of(c.device.Name, "takes"))
	require.Empty(t, c.allowances.broken(c.device.Name, []string{"takes"}))

	require.NoError(t, c.slot.Clear(t.Context()))
	how, limit = c.takes(t, 7818)
	require.Equal(t, "refused", how)
	require.EqualValues(t, 8192-300-75, limit/(1<<20))

	c.allowances.settle()
	next := openAllowances(c.dir, tasksIn(c.dir, "takes"), zap.NewNop())
	require.EqualValues(t, 300<<20, next.of(c.device.Name, "takes"))
	require.Zero(t, next.of("another model", "takes"))
	task, bytes := next.most(c.device.Name, []string{"other", "takes"})
	require.Equal(t, "takes", task)
	require.EqualValues(t, 300<<20, bytes)
	g := group{name: c.device.UUID, devices: []gpu.Device{c.device}}
	env := environment(PoolConfig{Slots: 1, GPUsPerSlot: 1, Memory: 8 << 30}, g, bytes)
	require.Equal(t, "8196718592", env["CUPY_GPU_MEMORY_LIMIT"])
}

// A model that was loaded with the task belongs to the framework, not to the context.
func TestAllowance_WithoutWhatIsResident(t *testing.T) {
	c := newCUDA(t, true, true)
	c.takes(t, 1)
	require.EqualValues(t, 300<<20, c.allowances.of(c.device.Name, "takes"))
}

func TestAllowance_ALimitThatDoesNotHoldIsSaid(t *testing.T) {
	c := newCUDA(t, false, false)
	how, _ := c.takes(t, 7800)
	require.Equal(t, "taken", how)
	require.NoError(t, c.slot.Clear(t.Context()))
	c.takes(t, 1)
	lines := c.log.FilterLevelExact(zap.WarnLevel).FilterMessageSnippet("does not keep to the slot's memory by itself").All()
	require.Len(t, lines, 1, "once")
	require.Contains(t, lines[0].ContextMap()["why"], "an allocation of 128 MiB passed a limit of 32 MiB")

	// The next worker knows, if it runs the task.
	c.allowances.settle()
	inventory, err := gpu.Open(gpu.Options{Static: []gpu.Device{c.device}})
	require.NoError(t, err)
	for task, want := range map[string]string{"takes": "framework caps except of torch", "other": "framework caps"} {
		list, _ := enforced(t, inventory, PoolConfig{Name: "gpu", Devices: gpu.Selection{"0"}, Memory: 8 << 30}, func(w *Worker) {
			w.tasks = tasksIn(c.dir, task)
			w.hostPIDs, w.allowances = false, openAllowances(c.dir, w.tasks, w.log)
		})
		require.Equal(t, []string{want}, list, task)
	}
}

// On the CPU it is what the idle process holds.
func TestAllowance_OfATaskOnTheCPU(t *testing.T) {
	b := newWorkbench(t, nil, false)
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "tasks.py"), []byte("kept = b'x' * (100 << 20)\ndef one(x): return x\n"), 0o644))
	a := openAllowances(b.dir, tasksIn(b.dir, "one"), b.to)
	pool := PoolConfig{Name: "pool", Memory: 140 << 20}
	s := b.slot(gpu.CPU, pool.Memory, func(o *slot.Options) {
		o.Loaded = func(task string, bytes int64) { a.loaded(pool, gpu.CPU, task, bytes) }
	})
	_, err := run(s, b.task("one"), 1)
	require.NoError(t, err)
	require.InDelta(t, 115<<20, int64(a.of(gpu.CPU, "one")), 12<<20, "the value and the interpreter")
	require.Equal(t, 1, b.log.FilterMessageSnippet("of its budget of 140MiB before any item").FilterLevelExact(zap.WarnLevel).Len())
}

func TestAllowance_AFileThatCannotBeReadIsMeasuredAnew(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "allowances.json"), []byte("{"), 0o644))
	a := openAllowances(dir, tasksIn(dir, "t"), zap.NewNop())
	a.capped("pool", "H200", 2, slot.Cap{Task: "t", Framework: "torch", Context: 600 << 20})
	a.settle()
	require.EqualValues(t, 300<<20, openAllowances(dir, tasksIn(dir, "t"), zap.NewNop()).of("H200", "t"), "of each device")
	a.capped("pool", "H200", 2, slot.Cap{Task: "t", Framework: "torch", Context: 640 << 20})
	require.EqualValues(t, 300<<20, a.of("H200", "t"), "about the same")
	require.Equal(t, gpumux.Size(0), openAllowances("", tasksIn("", "t"), zap.NewNop()).of("H200", "t"))
}

// The file is shared: by tasks of the same name in other projects, and by workers that run at the same time.
func TestAllowance_SharedByWorkers(t *testing.T) {
	dir := t.TempDir()
	torch := func(a *allowances, task string, bytes int64) {
		a.capped("pool", "H200", 1, slot.Cap{Task: task, Framework: "torch", Context: bytes})
		a.settle()
	}
	open := func(project string) *allowances { return openAllowances(dir, tasksIn(project, "t", "u"), zap.NewNop()) }
	first, second, other := open("/a"), open("/a"), open("/b")
	torch(first, "t", 300<<20)
	torch(second, "u", 400<<20)
	torch(other, "t", 500<<20)
	for _, a := range []*allowances{open("/a"), second} {
		require.EqualValues(t, 400<<20, a.of("H200", "u"))
		require.EqualValues(t, 300<<20, a.of("H200", "t"))
	}
	require.EqualValues(t, 500<<20, open("/b").of("H200", "t"))
	require.Zero(t, open("/b").of("H200", "u"))
	torch(first, "u", 800<<20)
	require.EqualValues(t, 800<<20, open("/a").of("H200", "u"), "what was seen last holds")
}

// What has not been seen for long is forgotten; what is seen again is not, though it did not change.
func TestAllowance_OldOnesAreForgotten(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	a := openAllowances(dir, tasksIn(dir, "t", "u"), zap.NewNop())
	a.now = func() time.Time { return now }
	seen := func(task string) {
		a.capped("pool", "H200", 1, slot.Cap{Task: task, Framework: "torch", Context: 300 << 20})
		a.settle()
	}
	now = now.Add(-allowanceAge - time.Hour)
	seen("t")
	seen("u")
	now = now.Add(2 * time.Hour)
	seen("u")
	now = now.Add(allowanceFresh)
	seen("u")
	next := openAllowances(dir, tasksIn(dir, "t", "u"), zap.NewNop())
	require.Zero(t, next.of("H200", "t"))
	require.EqualValues(t, 300<<20, next.of("H200", "u"))
}

// hungDisk puts a pipe in the place of the file: reading it waits until somebody writes to it, as on a network disk that hangs.
func hungDisk(t *testing.T, dir string) (answer func()) {
	t.Helper()
	file := filepath.Join(dir, "allowances.json")
	require.NoError(t, syscall.Mkfifo(file, 0o600))
	return func() {
		pipe, err := os.OpenFile(file, os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = pipe.WriteString("{}")
		require.NoError(t, errors.Join(err, pipe.Close()))
	}
}

// Every call of every task asks for allowances: no disk may keep them waiting. What was known last is kept once it answers.
func TestAllowance_ADiskThatHangsKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := openAllowances(dir, tasksIn(dir, "t", "u"), zap.NewNop())
	answer := hungDisk(t, dir)
	known := make(chan gpumux.Size)
	go func() {
		for _, mb := range []int64{300, 600, 900} {
			a.capped("pool", "H200", 1, slot.Cap{Task: "t", Framework: "torch", Context: mb << 20})
			a.capped("pool", "H200", 1, slot.Cap{Task: "u", Framework: "torch", Context: 2 * mb << 20})
		}
		known <- a.of("H200", "t")
	}()
	select {
	case size := <-known:
		require.EqualValues(t, 900<<20, size)
	case <-time.After(time.Minute):
		t.Fatal("it waits for the disk")
	}
	answer()
	a.settle()
	next := openAllowances(dir, tasksIn(dir, "t", "u"), zap.NewNop())
	require.EqualValues(t, 900<<20, next.of("H200", "t"))
	require.EqualValues(t, 1800<<20, next.of("H200", "u"))
}

// Neither may one keep the worker from ending, which waits for one that is well.
func TestAllowance_AreKeptWhenTheWorkerStops(t *testing.T) {
	t.Parallel()
	for _, hangs := range []bool{false, true} {
		w, dir := localWorker(t, "")
		core, seen := observer.New(zap.WarnLevel)
		w.log = zap.New(core)
		w.allowances = openAllowances(dir, tasksIn(dir, "t"), w.log)
		if hangs {
			w.o.Grace, w.slack = time.Millisecond, time.Second
			answer := hungDisk(t, dir)
			defer w.allowances.settle()
			defer answer()
		}
		w.allowances.capped("pool", "H200", 1, slot.Cap{Task: "t", Framework: "torch", Context: 300 << 20})
		require.NoError(t, w.Stop(t.Context()))
		if hangs {
			require.Equal(t, 1, seen.FilterMessageSnippet("the disk has not answered for 1.001s").Len())
		} else {
			require.EqualValues(t, 300<<20, openAllowances(dir, tasksIn(dir, "t"), w.log).of("H200", "t"))
		}
	}
}

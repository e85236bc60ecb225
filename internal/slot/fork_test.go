package slot_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/template"
)

// forge is a folder with a module, and slots whose fresh processes are forked from it.
type forge struct {
	t    *testing.T
	dir  string
	mark string
	all  *template.Set
	log  *observer.ObservedLogs
	to   *zap.Logger
}

func newForge(t *testing.T, module string) *forge {
	t.Helper()
	core, seen := observer.New(zap.InfoLevel)
	f := &forge{t: t, dir: t.TempDir(), mark: fmt.Sprintf("FORGE=%d/%s", os.Getpid(), t.Name()), log: seen, to: zap.New(core)}
	f.write("tasks.py", module)
	f.all = template.NewSet(f.to)
	t.Cleanup(func() {
		f.all.Close()
		require.Empty(t, marked(t, f.mark), "nothing is left")
	})
	return f
}

func (f *forge) write(name, text string) {
	f.t.Helper()
	require.NoError(f.t, os.WriteFile(filepath.Join(f.dir, name), []byte("import os, sys, time, gpumux\n"+text), 0o644))
}

// slot makes a slot; change may be nil.
func (f *forge) slot(name string, change func(*slot.Options)) *slot.Slot {
	f.t.Helper()
	o := slot.Options{
		Name: name, Device: "CPU", Runtime: runtimePath(f.t), Grace: 300 * time.Millisecond, Log: f.to,
	}
	if change != nil {
		change(&o)
	}
	s := slot.NewSharing(f.all, o)
	f.t.Cleanup(func() { require.NoError(f.t, s.Stop(context.Background())) })
	return s
}

func (f *forge) task(function string) launch.Task {
	name, value, _ := strings.Cut(f.mark, "=")
	return launch.Task{
		Name: function, Python: "tasks.py:" + function, Dir: f.dir, Mode: gpumux.ModeFresh,
		Env: map[string]string{name: value, "DIR": f.dir, "PYTHONDONTWRITEBYTECODE": "1"},
	}
}

// run returns the values of items as JSON.
func (f *forge) run(s *slot.Slot, function string, items ...any) []string {
	f.t.Helper()
	return f.texts(f.try(s, function, items...))
}

// try is run for other goroutines than the test's.
func (f *forge) try(s *slot.Slot, function string, items ...any) ([]calls.Done, error) {
	return run(f.t, s, f.task(function), slot.Call{Work: work(items...)})
}

// texts returns the values of items, which must all have succeeded.
func (f *forge) texts(got []calls.Done, err error) []string {
	f.t.Helper()
	require.NoError(f.t, err)
	list := []string{}
	for _, d := range got {
		require.Nil(f.t, d.Fault)
		list = append(list, string(d.Value))
	}
	return list
}

func (f *forge) logged(text string) []observer.LoggedEntry {
	return f.log.FilterMessageSnippet(text).All()
}

// pid is the process of the newest template.
func (f *forge) pid() int {
	f.t.Helper()
	made := f.pids()
	require.NotEmpty(f.t, made)
	return made[len(made)-1]
}

// pids are the processes of all templates so far.
func (f *forge) pids() (made []int) {
	for _, each := range f.logged("template ready") {
		made = append(made, int(each.ContextMap()["pid"].(int64)))
	}
	return made
}

const forked = `
import resource
with open(os.environ["DIR"] + "/imports", "a") as file: file.write("x")
state = []
def item(x):
    state.append(x)
    return [x, len(state), os.getpid(), "gpumux.process.template" in sys.modules, gpumux.slot().name, resource.getrlimit(10)[0]]
`

type seen struct {
	x, state, pid int
	forked        bool
	slot          string
	mark          uint64
}

func (s *seen) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&s.x, &s.state, &s.pid, &s.forked, &s.slot, &s.mark})
}

func (f *forge) seen(values []string) []seen {
	list := make([]seen, len(values))
	for i, value := range values {
		require.NoError(f.t, json.Unmarshal([]byte(value), &list[i]))
	}
	return list
}

func (f *forge) imports() int {
	data, err := os.ReadFile(filepath.Join(f.dir, "imports"))
	require.NoError(f.t, err)
	return len(data)
}

func TestFork_ItemsAreApart(t *testing.T) {
	t.Parallel()
	f := newForge(t, forked)
	var pids, marks []any
	for i, v := range f.seen(f.run(f.slot("cpu/0", nil), "item", ints(8)...)) {
		require.Equal(t, i, v.x)
		require.Equal(t, 1, v.state, "what an item leaves behind is not there for the next")
		require.True(t, v.forked)
		require.Equal(t, "cpu/0", v.slot)
		require.NotContains(t, pids, v.pid)
		require.NotContains(t, marks, v.mark)
		pids, marks = append(pids, v.pid), append(marks, v.mark)
	}
	require.Equal(t, 1, f.imports())
	require.Positive(t, f.log.FilterMessageSnippet("template ready").Len())
}

func TestFork_SpawnImportsForEachItem(t *testing.T) {
	t.Parallel()
	f := newForge(t, forked)
	task := f.task("item")
	task.Fresh = launch.Spawn
	got, err := run(t, f.slot("cpu/0", nil), task, slot.Call{Work: work(ints(3)...)})
	require.NoError(t, err)
	for _, d := range got {
		require.False(t, f.seen([]string{string(d.Value)})[0].forked)
	}
	require.Equal(t, 3, f.imports())
}

// Slots of one device share a template. Each device has its own, because a module may
// look at its device during the import.
// The commonest line of all asks whether there is a GPU, which in torch starts CUDA: here
// a file that stays open, as the driver's do. The import hears of the slot's devices
// instead, and the item the framework itself.
func TestFork_ImportsThatAskForDevices(t *testing.T) {
	t.Parallel()
	f := newForge(t, `
import torch
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
COUNT = torch.cuda.device_count()
def where(x): return [DEVICE, COUNT, torch.begun, torch.cuda.device_count(), torch.begun]
`)
	require.NoError(t, os.WriteFile(filepath.Join(f.dir, "torch.py"), []byte(`
import sys, types
begun = 0
def _begin():
    global begun, file
    begun += 1
    file = open(__file__)
    return 8
initial_seed = manual_seed = lambda *seed: 0
default_generator = types.SimpleNamespace(seed=lambda: 0)
_C, cuda = types.ModuleType("torch._C"), types.ModuleType("torch.cuda")
_C._cuda_getDeviceCount = cuda._device_count_nvml = _begin
cuda.is_available = lambda: _C._cuda_getDeviceCount() > 0
cuda.device_count = lambda: cuda._device_count_nvml()
`), 0o644))
	for visible, want := range map[string]string{"GPU-1,GPU-2": `["cuda",2,0,8,1]`, "": `["cpu",0,0,8,1]`} {
		s := f.slot("gpu/0", func(o *slot.Options) { o.Device, o.Env = "GPU-1", map[string]string{"CUDA_VISIBLE_DEVICES": visible} })
		got, err := run(t, s, f.task("where"), slot.Call{Work: work(1, 2)})
		require.NoError(t, err)
		for _, d := range got {
			require.Equal(t, want, string(d.Value))
		}
	}
	require.Len(t, f.log.FilterMessage("template ready: fresh items are forked from it").All(), 2)
}

func TestFork_SlotsOfADeviceShareATemplate(t *testing.T) {
	t.Parallel()
	f := newForge(t, forked+`
at_import = os.environ["CUDA_VISIBLE_DEVICES"]
def where(x): return [at_import, os.environ["CUDA_VISIBLE_DEVICES"], gpumux.slot().name, gpumux.slot().device]
`)
	device := func(name string) func(*slot.Options) {
		return func(o *slot.Options) { o.Device, o.Env = name, map[string]string{"CUDA_VISIBLE_DEVICES": name} }
	}
	var all sync.WaitGroup
	got, errs := make([][]calls.Done, 4), make([]error, 4)
	for i := range got {
		s := f.slot(fmt.Sprintf("gpu/%d", i), device("GPU-1"))
		all.Go(func() { got[i], errs[i] = f.try(s, "item", ints(6)...) })
	}
	all.Wait()
	require.Equal(t, 1, f.imports())
	pids := map[int]bool{}
	for i, list := range got {
		for _, v := range f.seen(f.texts(list, errs[i])) {
			require.Equal(t, fmt.Sprintf("gpu/%d", i), v.slot)
			require.Equal(t, 1, v.state)
			pids[v.pid] = true
		}
	}
	require.Len(t, pids, 24)
	for i, name := range []string{"GPU-1", "GPU-2"} {
		s := f.slot(fmt.Sprintf("other/%d", i), device(name))
		require.Equal(t, []string{fmt.Sprintf(`["%s","%s","other/%d","%s"]`, name, name, i, name)}, f.run(s, "where", 0))
	}
}

// A task may set its own handler of SIGTERM during its import.
func TestFork_SignalHandlersOfTheImportStay(t *testing.T) {
	t.Parallel()
	f := newForge(t, `
import signal
signal.signal(signal.SIGTERM, lambda *_: None)
def item(x):
    os.kill(os.getpid(), signal.SIGTERM)
    return 'gpumux.process.template' in sys.modules
`)
	require.Equal(t, []string{"true"}, f.run(f.slot("cpu/0", nil), "item", 1))
}

// Several processes are forked together, and yet each runs the hooks that the import set.
func TestFork_HooksOfTheImportRunInEachProcess(t *testing.T) {
	t.Parallel()
	f := newForge(t, `
ran = []
os.register_at_fork(after_in_child=lambda: ran.append(os.getpid()))
def item(x): return [ran[-1] == os.getpid(), 'gpumux.process.template' in sys.modules]
`)
	for _, value := range f.run(f.slot("cpu/0", nil), "item", ints(6)...) {
		require.Equal(t, "[true,true]", value)
	}
}

func TestFork_OutputAndTheEndOfAProcess(t *testing.T) {
	t.Parallel()
	f := newForge(t, `
import atexit, logging, tempfile, threading
print("import")
# For the time of the import's process, not of the first item's.
shared = tempfile.TemporaryDirectory(dir=os.environ["DIR"])
atexit.register(lambda: open(os.environ["DIR"] + "/exits", "a").write("import"))
def item(x):
    own = tempfile.TemporaryDirectory(dir=os.environ["DIR"])
    open(own.name + "/own", "w").close()
    open(shared.name + "/" + str(x), "x").close()
    globals()["kept"] = own
    atexit.register(lambda: open(os.environ["DIR"] + "/exits", "a").write("x"))
    print("hello", x)
    logging.info("logged %s", x)
    os.system("echo child %d" % x)
    # An interpreter waits for its threads before it ends.
    threading.Thread(target=lambda: (time.sleep(0.05), open(os.environ["DIR"] + "/exits", "a").write("t"))).start()
    return [sys.argv[1:], open("/proc/self/cmdline").read().strip("\0").split("\0")[1:]]
`)
	s := f.slot("cpu/0", nil)
	got, err := run(t, s, f.task("item"), slot.Call{Work: work(ints(3)...)})
	require.NoError(t, err)
	for i, d := range got {
		require.Equal(t, fmt.Sprintf("hello %d\nINFO:root:logged %d\nchild %d\n", i, i, i), d.Printed)
		require.Equal(t, fmt.Sprintf(`[[],["%s"]]`, runtimePath(t)), string(d.Value), "it shows itself as a task process")
	}
	exits, err := os.ReadFile(filepath.Join(f.dir, "exits"))
	require.NoError(t, err)
	require.Equal(t, "txtxtx", string(exits))
	left, err := filepath.Glob(filepath.Join(f.dir, "tmp*", "*"))
	require.NoError(t, err)
	require.Len(t, left, 3, "the import's folder is there for all items, and theirs is gone: %v", left)
}

func TestFork_ChangedCodeIsImportedAgain(t *testing.T) {
	t.Parallel()
	f := newForge(t, "import near\nvalue = 1\ndef item(x): return [value, near.value]\n")
	f.write("near.py", "value = 1\n")
	s := f.slot("cpu/0", nil)
	require.Equal(t, []string{"[1,1]", "[1,1]"}, f.run(s, "item", 0, 1))
	f.write("near.py", "value = 22\n")
	require.Equal(t, []string{"[1,22]", "[1,22]"}, f.run(s, "item", 0, 1))
	f.write("tasks.py", "import near\nvalue = 333\ndef item(x): return [value, near.value]\n")
	require.Equal(t, []string{"[333,22]", "[333,22]"}, f.run(s, "item", 0, 1))

	f.write("tasks.py", "import no_such_module\n")
	_, err := run(t, s, f.task("item"), slot.Call{Work: work(1)})
	broken := fault(t, err)
	require.Equal(t, gpumux.FaultBadInput, broken.Kind)
	require.Equal(t, "start", broken.Op)
	require.Contains(t, broken.Message, "no_such_module")
	require.Contains(t, broken.Traceback, "tasks.py")
	f.write("tasks.py", "def item(x): return 4444\n")
	require.Equal(t, []string{"4444"}, f.run(s, "item", 0))
}

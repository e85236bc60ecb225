package slot_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers/slot"
)

// forge is a folder with a module, and slots whose fresh processes are forked from it.
type forge struct {
	t    *testing.T
	dir  string
	mark string
	all  *slot.Templates
	log  *observer.ObservedLogs
	to   *zap.Logger
}

func newForge(t *testing.T, module string) *forge {
	t.Helper()
	core, seen := observer.New(zap.InfoLevel)
	f := &forge{t: t, dir: t.TempDir(), mark: fmt.Sprintf("FORGE=%d/%s", os.Getpid(), t.Name()), log: seen, to: zap.New(core)}
	f.write("tasks.py", module)
	f.all = slot.NewTemplates(f.to)
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
		Name: name, Pool: "cpu", Device: "CPU", Runtime: runtimePath(f.t), Templates: f.all, Grace: 300 * time.Millisecond, Log: f.to,
	}
	if change != nil {
		change(&o)
	}
	s := slot.New(o)
	f.t.Cleanup(func() { require.NoError(f.t, s.Stop(context.Background())) })
	return s
}

func (f *forge) task(function string) slot.Task {
	name, value, _ := strings.Cut(f.mark, "=")
	return slot.Task{
		Name: function, Python: "tasks.py:" + function, Dir: f.dir, Mode: gpumux.Fresh,
		Env: map[string]string{name: value, "DIR": f.dir, "PYTHONDONTWRITEBYTECODE": "1"},
	}
}

// run is the values of items, as JSON.
func (f *forge) run(s *slot.Slot, function string, items ...any) []string {
	f.t.Helper()
	got, err := run(f.t, s, slot.Call{Task: f.task(function), Items: values(items...)})
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

// pid is the process of the template that was made last.
func (f *forge) pid() int {
	f.t.Helper()
	made := f.logged("template ready")
	require.NotEmpty(f.t, made)
	return int(made[len(made)-1].ContextMap()["pid"].(int64))
}

const forked = `
with open(os.environ["DIR"] + "/imports", "a") as file: file.write("x")
state = []
def item(x):
    state.append(x)
    return [x, len(state), os.getpid(), "gpumux.template" in sys.modules, gpumux.slot().name, os.environ["GPUMUX_PROCESS"]]
`

type seen struct {
	x, state, pid int
	forked        bool
	slot, token   string
}

func (s *seen) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&s.x, &s.state, &s.pid, &s.forked, &s.slot, &s.token})
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
	f := newForge(t, forked)
	var pids, tokens []any
	for i, v := range f.seen(f.run(f.slot("cpu/0", nil), "item", ints(8)...)) {
		require.Equal(t, i, v.x)
		require.Equal(t, 1, v.state, "what an item leaves behind is not there for the next")
		require.True(t, v.forked)
		require.Equal(t, "cpu/0", v.slot)
		require.NotContains(t, pids, v.pid)
		require.NotContains(t, tokens, v.token)
		pids, tokens = append(pids, v.pid), append(tokens, v.token)
	}
	require.Equal(t, 1, f.imports())
	require.Positive(t, f.log.FilterMessageSnippet("template ready").Len())
	require.NotEmpty(t, f.logged("template ready")[0].ContextMap()["memory"])
}

func TestFork_SpawnImportsForEachItem(t *testing.T) {
	f := newForge(t, forked)
	task := f.task("item")
	task.Fresh = slot.Spawn
	got, err := run(t, f.slot("cpu/0", nil), slot.Call{Task: task, Items: values(ints(3)...)})
	require.NoError(t, err)
	for _, d := range got {
		require.False(t, f.seen([]string{string(d.Value)})[0].forked)
	}
	require.Equal(t, 3, f.imports())
}

// Slots of one device share a template; those of another have their own, since a module may look at the device it imports on.
func TestFork_SlotsOfADeviceShareATemplate(t *testing.T) {
	f := newForge(t, forked+`
at_import = os.environ["CUDA_VISIBLE_DEVICES"]
def where(x): return [at_import, os.environ["CUDA_VISIBLE_DEVICES"], gpumux.slot().name, gpumux.slot().device]
`)
	device := func(name string) func(*slot.Options) {
		return func(o *slot.Options) { o.Device, o.Env = name, map[string]string{"CUDA_VISIBLE_DEVICES": name} }
	}
	var all sync.WaitGroup
	got := make([][]seen, 4)
	for i := range got {
		s := f.slot(fmt.Sprintf("gpu/%d", i), device("GPU-1"))
		all.Go(func() { got[i] = f.seen(f.run(s, "item", ints(6)...)) })
	}
	all.Wait()
	require.Equal(t, 1, f.imports())
	pids := map[int]bool{}
	for i, list := range got {
		for _, v := range list {
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

// SIGTERM is the task's own if it says so while it is imported.
func TestFork_SignalHandlersOfTheImportStay(t *testing.T) {
	f := newForge(t, `
import signal
signal.signal(signal.SIGTERM, lambda *_: None)
def item(x):
    os.kill(os.getpid(), signal.SIGTERM)
    return 'gpumux.template' in sys.modules
`)
	require.Equal(t, []string{"true"}, f.run(f.slot("cpu/0", nil), "item", 1))
}

func TestFork_OutputAndTheEndOfAProcess(t *testing.T) {
	f := newForge(t, `
import atexit, logging, threading
print("import")
atexit.register(lambda: open(os.environ["DIR"] + "/exits", "a").write("x"))
def item(x):
    print("hello", x)
    logging.info("logged %s", x)
    os.system("echo child %d" % x)
    # An interpreter waits for its threads before it ends.
    threading.Thread(target=lambda: (time.sleep(0.05), open(os.environ["DIR"] + "/exits", "a").write("t"))).start()
    return [sys.argv[1:], open("/proc/self/cmdline").read().strip("\0").split("\0")[1:]]
`)
	s := f.slot("cpu/0", nil)
	got, err := run(t, s, slot.Call{Task: f.task("item"), Items: values(ints(3)...)})
	require.NoError(t, err)
	for i, d := range got {
		require.Equal(t, fmt.Sprintf("hello %d\nINFO root: logged %d\nchild %d\n", i, i, i), d.Output)
		require.Equal(t, fmt.Sprintf(`[[],["%s"]]`, runtimePath(t)), string(d.Value), "it shows itself as a task process")
	}
	exits, err := os.ReadFile(filepath.Join(f.dir, "exits"))
	require.NoError(t, err)
	require.Equal(t, "txtxtx", string(exits))
}

func TestFork_ATemplateThatIsKilledIsMadeAnew(t *testing.T) {
	f := newForge(t, forked+`
def slow(x):
    open(os.environ["DIR"] + "/begun", "w").close()
    while not os.path.exists(os.environ["DIR"] + "/gate"): time.sleep(0.002)
    return os.getpid()
`)
	s := f.slot("cpu/0", nil)
	require.Len(t, f.run(s, "item", 1), 1)
	for n := range 2 {
		require.NoError(t, syscall.Kill(f.pid(), syscall.SIGKILL))
		require.Eventually(t, func() bool { return len(f.logged("a template ended")) == n+1 }, 20*time.Second, 2*time.Millisecond)
		require.True(t, f.seen(f.run(s, "item", 2))[0].forked, "round %d", n)
		require.Equal(t, n+2, f.imports())
	}

	// An item that runs is no business of its template's.
	result := make(chan []string, 1)
	go func() { result <- f.run(s, "slow", 1) }()
	require.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(f.dir, "begun")); return err == nil }, 20*time.Second, 2*time.Millisecond)
	template := f.pid()
	require.NoError(t, syscall.Kill(template, syscall.SIGKILL))
	require.Eventually(t, func() bool {
		return !slices.ContainsFunc(marked(t, f.mark), func(each string) bool { return strings.Contains(each, fmt.Sprintf("/proc/%d/", template)) })
	}, 20*time.Second, 2*time.Millisecond)
	require.NoError(t, os.WriteFile(filepath.Join(f.dir, "gate"), nil, 0o644))
	require.Len(t, <-result, 1)
	require.Empty(t, f.logged("cannot be forked"))
}

// What waits in a template to become a task process may die too.
func TestFork_AWaitingChildThatIsKilledIsReplaced(t *testing.T) {
	f := newForge(t, forked)
	s := f.slot("cpu/0", nil)
	for range 3 {
		require.True(t, f.seen(f.run(s, "item", 1))[0].forked)
		for _, each := range marked(t, f.mark) {
			pid, err := strconv.Atoi(strings.Split(each, "/")[2])
			require.NoError(t, err)
			if pid != f.pid() {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
	require.True(t, f.seen(f.run(s, "item", 1))[0].forked)
	require.Equal(t, 1, f.imports())
}

func TestFork_ChangedCodeIsImportedAgain(t *testing.T) {
	f := newForge(t, "import near\nvalue = 1\ndef item(x): return [value, near.value]\n")
	f.write("near.py", "value = 1\n")
	s := f.slot("cpu/0", nil)
	require.Equal(t, []string{"[1,1]", "[1,1]"}, f.run(s, "item", 0, 1))
	f.write("near.py", "value = 22\n")
	require.Equal(t, []string{"[1,22]", "[1,22]"}, f.run(s, "item", 0, 1))
	f.write("tasks.py", "import near\nvalue = 333\ndef item(x): return [value, near.value]\n")
	require.Equal(t, []string{"[333,22]", "[333,22]"}, f.run(s, "item", 0, 1))

	f.write("tasks.py", "import no_such_module\n")
	_, err := run(t, s, slot.Call{Task: f.task("item"), Items: values(1)})
	broken := fault(t, err)
	require.Equal(t, gpumux.BadInput, broken.Kind)
	require.Equal(t, "start", broken.Op)
	require.Contains(t, broken.Message, "no_such_module")
	require.Contains(t, broken.Traceback, "tasks.py")
	f.write("tasks.py", "def item(x): return 4444\n")
	require.Equal(t, []string{"4444"}, f.run(s, "item", 0))
}

// Random state that came from the system differs between items as in new interpreters; what the task seeded stays.
func TestFork_RandomState(t *testing.T) {
	f := newForge(t, `
import random
own, seeded = random.Random(), random.Random(7)
def item(x): return [random.random(), own.random(), seeded.random()]
`)
	s := f.slot("cpu/0", nil)
	columns(t, f.run(s, "item", ints(6)...), true, true, false)
	f.write("tasks.py", "import random\nrandom.seed(3)\ndef item(x): return [random.random(), 'gpumux.template' in sys.modules]\n")
	columns(t, f.run(s, "item", ints(4)...), false, false)
	require.Contains(t, f.run(s, "item", 0)[0], "true")
}

func TestFork_RandomStateOfNumPy(t *testing.T) {
	interpreter := withModule(t, "numpy")
	f := newForge(t, `
import numpy as np
own, seeded = np.random.default_rng(), np.random.default_rng(7)
old, fixed = np.random.RandomState(), np.random.RandomState(7)
child = own.spawn(1)[0] if hasattr(own, "spawn") else np.random.default_rng()
def item(x): return [np.random.rand(), own.random(), old.rand(), child.random(), seeded.random(), fixed.rand()]
`)
	s := f.slot("cpu/0", nil)
	draw := func() []string {
		task := f.task("item")
		task.Interpreter = interpreter
		got, err := run(t, s, slot.Call{Task: task, Items: values(ints(5)...)})
		require.NoError(t, err)
		var list []string
		for _, d := range got {
			list = append(list, string(d.Value))
		}
		return list
	}
	columns(t, draw(), true, true, true, true, false, false)
	f.write("tasks.py", "import numpy as np\nnp.random.seed(3)\ndef item(x): return [np.random.rand()]\n")
	columns(t, draw(), false)
	require.NotEmpty(t, f.logged("template ready"))
	require.Empty(t, f.logged("cannot be forked"))
}

// columns checks which positions of the results differ from item to item.
func columns(t *testing.T, results []string, differ ...bool) {
	t.Helper()
	for at, want := range differ {
		values := map[string]bool{}
		for _, result := range results {
			var row []json.RawMessage
			require.NoError(t, json.Unmarshal([]byte(result), &row))
			values[string(row[at])] = true
		}
		if want {
			require.Len(t, values, len(results), "column %d of %v", at, results)
		} else {
			require.Len(t, values, 1, "column %d of %v", at, results)
		}
	}
}

// withModule is a Python that has a module.
func withModule(t *testing.T, module string) string {
	t.Helper()
	venv, err := filepath.Abs("../../.venv/bin/python")
	require.NoError(t, err)
	for _, each := range []string{os.Getenv("GPUMUX_TEST_PYTHON"), venv, "python3"} {
		if each != "" && exec.Command(each, "-c", "import "+module).Run() == nil {
			return each
		}
	}
	t.Skipf("no Python here has %s; GPUMUX_TEST_PYTHON names one", module)
	return ""
}

// What a framework is after its import can be forked, and works in the child; what it becomes with its first use can not.
func TestFork_Frameworks(t *testing.T) {
	for module, code := range map[string]struct{ use, sum string }{
		"jax":   {"import jax\njax.config.update('jax_platforms', 'cpu')\nimport jax.numpy as jnp\ndef use(x): return float((jnp.ones((64, 64)) @ jnp.ones((64, 64))).sum()) + x\n", "262144"},
		"torch": {"import torch\ndef use(x): return float((torch.ones(512, 512) @ torch.ones(512, 512)).sum()) + x\n", "134217728"},
		"numpy": {"import numpy as np\ndef use(x): return float((np.ones((512, 512)) @ np.ones((512, 512))).sum()) + x\n", "134217728"},
	} {
		t.Run(module, func(t *testing.T) {
			interpreter := withModule(t, module)
			item := code.use + "def item(x): return [use(x), 'gpumux.template' in sys.modules]\n"
			f := newForge(t, item)
			s := f.slot("cpu/0", nil)
			first := func() string {
				task := f.task("item")
				task.Interpreter = interpreter
				got, err := run(t, s, slot.Call{Task: task, Items: values(0, 0)})
				require.NoError(t, err)
				require.Equal(t, got[0].Value, got[1].Value)
				return string(got[0].Value)
			}
			require.Equal(t, "["+code.sum+".0,true]", first())
			if module == "jax" {
				f.write("tasks.py", item+"began = use(0)\n")
				require.Equal(t, "["+code.sum+".0,false]", first())
				require.Contains(t, f.logged("cannot be forked")[0].ContextMap()["why"], "threads")
			}
		})
	}
}

// What a framework's random numbers start from differs between items as in new interpreters.
func TestFork_RandomStateOfTorch(t *testing.T) {
	interpreter := withModule(t, "torch")
	f := newForge(t, "import torch\ndef item(x): return [float(torch.rand(1))]\n")
	for _, differ := range []bool{true, false} {
		task := f.task("item")
		task.Interpreter = interpreter
		got, err := run(t, f.slot("cpu/0", nil), slot.Call{Task: task, Items: values(ints(3)...)})
		require.NoError(t, err)
		var list []string
		for _, d := range got {
			list = append(list, string(d.Value))
		}
		columns(t, list, differ)
		f.write("tasks.py", "import torch\ntorch.manual_seed(3)\ndef item(x): return [float(torch.rand(1))]\n")
	}
	require.Len(t, f.logged("template ready"), 2)
}

// What a fork would break or share is seen, said once, and done with new interpreters instead.
func TestFork_WhatCannotBeForkedIsSpawned(t *testing.T) {
	const item = "\ndef item(x): return 'gpumux.template' in sys.modules\n"
	for name, test := range map[string]struct{ code, why string }{
		"Thread":     {"import threading\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()", "leaves 1 threads running"},
		"File":       {"file = open(os.environ['DIR'] + '/tasks.py')", "tasks.py open"},
		"Connection": {"import socket\npair = socket.socketpair()", "leaves socket:["},
		"Process":    {"import subprocess\nchild = subprocess.Popen(['sleep', '600'])", "running, which belongs to no item"},
		"Shared":     {"import mmap\nshared = mmap.mmap(-1, 4096)", "memory that all items would share"},
		"Hang":       {"os.register_at_fork(after_in_child=lambda: time.sleep(600))", "hung for 3 s"},
		"Death":      {"os.register_at_fork(after_in_child=lambda: os._exit(1))", "did not survive"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newForge(t, test.code+item)
			s := f.slot("cpu/0", nil)
			require.Equal(t, []string{"false", "false", "false"}, f.run(s, "item", ints(3)...))
			said := f.logged("cannot be forked")
			require.Len(t, said, 1)
			require.Contains(t, said[0].ContextMap()["why"], test.why)
			require.Contains(t, said[0].ContextMap()["advice"], "fresh: spawn")
			f.write("tasks.py", item)
			require.Equal(t, []string{"true"}, f.run(s, "item", 0), "what was changed is tried again")
		})
	}
}

// A fork that goes wrong later, in whatever way, costs time and no item.
func TestFork_AForkThatGoesWrongFailsNoItem(t *testing.T) {
	for name, how := range map[string]string{"Hang": "time.sleep(600)", "Death": "os._exit(1)"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newForge(t, "def later():\n    if os.path.exists(os.environ['DIR'] + '/gate'): "+how+`
os.register_at_fork(after_in_child=later)
def item(x): return 'gpumux.template' in sys.modules
`)
			s := f.slot("cpu/0", func(o *slot.Options) { o.StartLimit = 6 * time.Second })
			require.Equal(t, []string{"true"}, f.run(s, "item", 0))
			require.NoError(t, os.WriteFile(filepath.Join(f.dir, "gate"), nil, 0o644))
			got := f.run(s, "item", ints(4)...)
			require.Len(t, got, 4)
			require.Equal(t, []string{"false", "false"}, got[2:])
			require.Len(t, f.logged("cannot be forked"), 1)
		})
	}
}

func TestFork_CancellationEndsWhateverHangs(t *testing.T) {
	for _, how := range []string{"hang", "stubborn", "stop", "bomb"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, gpumux.Fresh)
			s.canceled(slot.Call{Task: s.task("item"), Mode: gpumux.Fresh, Items: values(object{"i": 0}, object{"i": 1, "end": how})})
			s.works()
			require.NotEmpty(t, s.templates())
		})
	}
}

func TestFork_NothingOutlivesAKilledWorker(t *testing.T) {
	t.Parallel()
	s := newStand(t, gpumux.Fresh)
	task := s.task("daemon")
	task.Mode = gpumux.Fresh
	text, err := json.Marshal(task)
	require.NoError(t, err)
	worker := exec.Command(os.Args[0])
	worker.Env = append(os.Environ(), "GPUMUX_TEST_PROGRAM=forking", "TASK="+string(text), "RUNTIME="+runtimePath(t))
	worker.Stderr = os.Stderr
	out, err := worker.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, worker.Start())
	t.Cleanup(func() { worker.Process.Kill() })
	require.Eventually(t, func() bool { return len(s.left()) >= 2 && len(s.templates()) >= 2 }, 20*time.Second, time.Millisecond)
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "running", strings.TrimSpace(line))
	require.NoError(t, worker.Process.Kill())
	io.Copy(io.Discard, out)
	worker.Wait()
	require.Eventually(t, func() bool { return len(s.marked()) == 0 }, 20*time.Second, 5*time.Millisecond)
}

// forking is a worker that somebody kills: two of its slots have a forked process each, one that hangs and one with a descendant
// that got away by forking and hangs as well.
func forking() {
	var task slot.Task
	if err := json.Unmarshal([]byte(os.Getenv("TASK")), &task); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	all := slot.NewTemplates(nil)
	var slots sync.WaitGroup
	for i, item := range []string{"hang", "fork and hang"} {
		s := slot.New(slot.Options{Name: fmt.Sprintf("cpu/%d", i), Device: "CPU", Runtime: os.Getenv("RUNTIME"), Templates: all})
		slots.Go(func() {
			s.Run(context.Background(), slot.Call{Task: task, Items: values(item), Done: func(slot.Done) {}})
		})
	}
	fmt.Println("running")
	slots.Wait()
	os.Exit(1)
}

func TestFork_StoppedTemplatesAreSpawned(t *testing.T) {
	f := newForge(t, forked)
	s := f.slot("cpu/0", nil)
	require.True(t, f.seen(f.run(s, "item", 1))[0].forked)
	f.all.Close()
	require.Empty(t, marked(t, f.mark))
	require.False(t, f.seen(f.run(s, "item", 1))[0].forked)
}

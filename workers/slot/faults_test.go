package slot_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/skip"
	"github.com/gpumux/gpumux/internal/wait"
	"github.com/gpumux/gpumux/workers/slot"
	"github.com/gpumux/gpumux/workers/slot/launch"
)

// ending is one way in which a task process or an item ends badly; how is its name in testdata/faults.py.
type ending struct {
	how  string
	kind gpumux.Kind
	// exit and message stand in the fault's fields of these names.
	exit, message string
	// lives: the fault is the item's alone, and the process goes on.
	lives bool
	// late: only a limit on time ends it.
	late bool
	// loading is the kind when it happens while the task is imported. Default: kind.
	loading gpumux.Kind
	// thread: it can happen between items, on another thread.
	thread bool
	// native: it needs testdata/native.cpp.
	native bool
}

var endings = []ending{
	{how: "segfault", kind: gpumux.Crash, exit: "signal SIGSEGV", message: "Fatal Python error", thread: true},
	{how: "abort", kind: gpumux.Crash, exit: "signal SIGABRT", thread: true},
	{how: "kill", kind: gpumux.Crash, exit: "signal SIGKILL", thread: true},
	{how: "term", kind: gpumux.Crash, exit: "SIGTERM", thread: true},
	{how: "bus", kind: gpumux.Crash, exit: "signal SIGBUS", thread: true},
	{how: "exit0", kind: gpumux.Crash, exit: "exit status 0", thread: true},
	{how: "exit3", kind: gpumux.Crash, exit: "exit status 3", thread: true},
	{how: "terminate", kind: gpumux.Crash, exit: "signal SIGABRT", thread: true, native: true},
	{how: "overflow", kind: gpumux.Crash, exit: "signal SIGSEGV", thread: true, native: true},
	{how: "memory", kind: gpumux.HostOOM},
	{how: "device_memory", kind: gpumux.DeviceOOM, message: "CUDA out of memory"},
	{how: "poison", kind: gpumux.Crash, message: "device-side assert triggered"},
	{how: "lost", kind: gpumux.DeviceLost, message: "GPU is lost"},
	{how: "garbage", kind: gpumux.Crash, message: "no header line"},
	{how: "length", kind: gpumux.Crash, message: "a frame claims 4294967295 bytes"},
	{how: "close_wire", kind: gpumux.Crash, message: "closed its wire and went on"},
	{how: "hang", kind: gpumux.Timeout, late: true},
	{how: "stubborn", kind: gpumux.Timeout, late: true},
	{how: "spin", kind: gpumux.Timeout, late: true, native: true},
	{how: "stop", kind: gpumux.Timeout, late: true},
	{how: "bomb", kind: gpumux.Timeout, late: true},
	{how: "sys_exit", kind: gpumux.TaskError, lives: true, loading: gpumux.BadInput, message: "sys.exit(3)"},
	{how: "interrupt", kind: gpumux.TaskError, lives: true, loading: gpumux.BadInput},
	{how: "exception", kind: gpumux.TaskError, lives: true, loading: gpumux.BadInput, message: "missing"},
	{how: "recursion", kind: gpumux.TaskError, lives: true, loading: gpumux.BadInput, message: "maximum recursion depth"},
}

// patience bounds an item where something hangs on purpose. Nothing else that these items do takes nearly as long.
const patience = 1200 * time.Millisecond

// stand is a slot with tasks that end badly. Its processes carry a mark of their own, so that what is left of them is
// found wherever it went.
type stand struct {
	*slot.Slot
	t    *testing.T
	mode gpumux.Mode
	// fresh is how its tasks say that fresh processes come to be.
	fresh  launch.Fresh
	device string
	mark   string
	log    string
}

// stands counts them, since a test may have several.
var stands atomic.Int64

func newStand(t *testing.T, mode gpumux.Mode) *stand {
	t.Helper()
	s := &stand{
		t: t, mode: mode, device: "CPU", log: filepath.Join(t.TempDir(), "log"),
		mark: fmt.Sprintf("FAULTS=%d/%s/%d", os.Getpid(), t.Name(), stands.Add(1)),
	}
	require.NoError(t, os.WriteFile(s.log, nil, 0o644))
	s.limit(30 * time.Second)
	t.Cleanup(func() {
		require.NoError(t, s.Stop(context.Background()))
		require.Equal(t, slot.Stopped, s.State())
		require.Empty(t, s.left(), "every process of the slot is gone")
		require.Empty(t, s.templates(), "and so are the templates")
	})
	return s
}

// newSpawning is a stand that starts a new interpreter for each item.
func newSpawning(t *testing.T) *stand {
	t.Helper()
	s := newStand(t, gpumux.Fresh)
	s.fresh = launch.Spawn
	return s
}

// limit makes the slot, with this limit on starts.
func (s *stand) limit(start time.Duration) {
	if s.Slot != nil {
		require.NoError(s.t, s.Stop(context.Background()))
	}
	s.Slot = slot.New(slot.Options{
		Name: "cpu/1", Device: s.device, Runtime: runtimePath(s.t), Grace: 150 * time.Millisecond, StartLimit: start,
	})
}

// limitStart lets a start that hangs on purpose last many times as long as a good one does on this machine just now.
func (s *stand) limitStart() {
	s.t.Helper()
	began := time.Now()
	s.works()
	s.limit(max(patience, 6*time.Since(began)))
	require.NoError(s.t, os.WriteFile(s.log, nil, 0o644))
}

// task is a function of testdata/faults.py; env are pairs of a name and a value.
func (s *stand) task(function string, env ...string) launch.Task {
	dir, err := filepath.Abs("testdata")
	require.NoError(s.t, err)
	name, value, _ := strings.Cut(s.mark, "=")
	task := launch.Task{Name: function, Python: "faults.py:" + function, Dir: dir, Fresh: s.fresh, Env: map[string]string{
		name: value, "LOG": s.log, "NATIVE": native(), "PYTHONPYCACHEPREFIX": filepath.Join(os.TempDir(), "gpumux-test-runtime", "cache"),
	}}
	for i := 0; i < len(env); i += 2 {
		task.Env[env[i]] = env[i+1]
	}
	return task
}

func (s *stand) run(call slot.Call) ([]slot.Done, error) {
	s.t.Helper()
	if call.Mode == "" {
		call.Mode = s.mode
	}
	return run(s.t, s.Slot, call)
}

// canceled cancels the call as soon as its last item has begun, and looks for what is left when the slot has answered.
func (s *stand) canceled(call slot.Call) {
	s.t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	n := 0
	for range call.Items {
		n++
	}
	why := errors.New("enough")
	before := len(s.begun())
	ended := make(chan error, 1)
	call.Done = func(slot.Done) {}
	go func() { ended <- s.Run(ctx, call) }()
	wait.For(s.t, func() bool { return len(s.begun()) == before+n }, time.Minute, 2*time.Millisecond)
	cancel(why)
	require.ErrorIs(s.t, <-ended, why)
	require.Empty(s.t, s.left())
	require.Equal(s.t, slot.Vacant, s.State())
}

// works is the call after the fault: nothing of it may be felt.
func (s *stand) works() {
	s.t.Helper()
	got, err := s.run(slot.Call{Task: s.task("item"), Items: values(object{"i": 90})})
	require.NoError(s.t, err)
	require.Equal(s.t, []int{90}, numbers(s.t, got))
	if s.mode == gpumux.Fresh {
		require.Equal(s.t, slot.Vacant, s.State())
		require.Equal(s.t, s.fresh != launch.Spawn, len(s.templates()) > 0, "it was forked, or not")
	} else {
		require.Equal(s.t, slot.Ready, s.State())
	}
}

// dead checks a fault that ended the process: what it says, and that nothing of the process is left when it is told.
func (s *stand) dead(err error, e ending, kind gpumux.Kind, op string) *gpumux.Fault {
	s.t.Helper()
	require.Empty(s.t, s.left(), "the fault is told when the process is gone, not before")
	require.Equal(s.t, slot.Vacant, s.State())
	f := fault(s.t, err)
	require.Equal(s.t, kind, f.Kind, f.Error())
	require.Equal(s.t, op, f.Op)
	require.Contains(s.t, f.Exit, e.exit)
	require.Contains(s.t, f.Message, e.message)
	require.Equal(s.t, "cpu/1", f.Slot)
	require.NotZero(s.t, f.PID)
	require.NotEmpty(s.t, f.Message)
	require.NotEmpty(s.t, f.Hint, f.Error())
	require.Equal(s.t, kind == gpumux.DeviceLost, f.Blameless)
	if kind != gpumux.BadInput {
		require.Contains(s.t, f.Tail, "last words of "+e.how)
	}
	return f
}

// begun are the items that have begun, in order.
func (s *stand) begun() []string {
	data, err := os.ReadFile(s.log)
	require.NoError(s.t, err)
	return strings.Fields(string(data))
}

// program starts this test binary as another program, which is given a task and says on the reader what it sees.
func (s *stand) program(name string, task launch.Task) (*exec.Cmd, io.Reader) {
	s.t.Helper()
	text, err := json.Marshal(task)
	require.NoError(s.t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "GPUMUX_TEST_PROGRAM="+name, "TASK="+string(text), "RUNTIME="+runtimePath(s.t))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(s.t, err)
	require.NoError(s.t, cmd.Start())
	s.t.Cleanup(func() { cmd.Process.Kill() })
	return cmd, out
}

// left are the living processes with the slot's mark, without the templates and what waits in them.
func (s *stand) left() []string {
	return slices.DeleteFunc(s.marked(), isTemplate)
}

// templates are the templates, and what waits in them to become a task process.
func (s *stand) templates() []string {
	return slices.DeleteFunc(s.marked(), func(each string) bool { return !isTemplate(each) })
}

func isTemplate(command string) bool { return strings.Contains(command, " template ") }

func (s *stand) marked() []string { return marked(s.t, s.mark) }

// marked are the living processes that carry a mark in their environment, with their commands.
func marked(t *testing.T, mark string) []string {
	t.Helper()
	var list []string
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	for _, file := range files {
		env, err := os.ReadFile(file)
		command, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		if len(command) == 0 {
			continue // it has let go of its memory since the line before, as a template's helpers do at any time
		}
		words := bytes.Split(append(env, command...), []byte{0})
		if err == nil && slices.ContainsFunc(words, func(word []byte) bool { return string(word) == mark }) {
			list = append(list, file+" "+strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return list
}

type object = map[string]any

// numbers are the items that the results are of.
func numbers(t *testing.T, got []slot.Done) []int {
	t.Helper()
	list := []int{}
	for _, d := range got {
		require.Nil(t, d.Fault)
		var value [2]int
		require.NoError(t, json.Unmarshal(d.Value, &value))
		list = append(list, value[0])
	}
	return list
}

// nativeDir is the folder of native; TestMain deletes it.
var nativeDir string

// native is the compiled testdata/native.cpp, or "" where there is no compiler.
var native = sync.OnceValue(func() string {
	var err error
	if nativeDir, err = os.MkdirTemp("", "gpumux-native-"); err != nil {
		return ""
	}
	path := filepath.Join(nativeDir, "native.so")
	for _, compiler := range [][]string{{"g++"}, {"cc", "-x", "c"}} {
		if exec.Command(compiler[0], append(compiler[1:], "-O0", "-shared", "-fPIC", "-o", path, "testdata/native.cpp")...).Run() == nil {
			return path
		}
	}
	return ""
})

// neighbour is another slot that works all the time; ended stops it and says what was wrong with its results.
func neighbour(t *testing.T) (ended func()) {
	s := slot.New(slot.Options{Name: "cpu/0", Device: "CPU", Runtime: runtimePath(t)})
	dir, err := filepath.Abs("testdata")
	require.NoError(t, err)
	task := launch.Task{Name: "item", Python: "faults.py:item", Dir: dir, Env: map[string]string{
		"LOG": os.DevNull, "PYTHONPYCACHEPREFIX": filepath.Join(os.TempDir(), "gpumux-test-runtime", "cache"),
	}}
	quit, over := make(chan struct{}), make(chan error, 1)
	var got []slot.Done
	go func() {
		over <- s.Run(context.Background(), slot.Call{Task: task, Done: func(d slot.Done) { got = append(got, d) },
			Items: func(yield func(gpumux.Item, error) bool) {
				for i := 0; ; i++ {
					select {
					case <-quit:
						return
					default:
					}
					if !yield(gpumux.Item{Index: int64(i), Value: fmt.Appendf(nil, `{"i": %d, "nap": 0.005}`, i)}, nil) {
						return
					}
				}
			}})
	}()
	return func() {
		close(quit)
		require.NoError(t, <-over)
		require.NoError(t, s.Stop(context.Background()))
		pids := map[string]bool{}
		for i, d := range got {
			require.EqualValues(t, i, d.Index)
			_, pid, _ := strings.Cut(string(d.Value), ",")
			pids[pid] = true
			require.Equal(t, fmt.Sprintf("[%d,%s", i, pid), string(d.Value))
		}
		require.Len(t, pids, 1, "the neighbour kept its process")
		require.Greater(t, len(got), 100)
	}
}

// TestSlot_Faults is every ending at every time in both modes, beside a neighbour that must not feel any of it.
func TestSlot_Faults(t *testing.T) {
	undisturbed := neighbour(t)
	t.Run("Table", func(t *testing.T) {
		for _, e := range endings {
			t.Run(e.how, func(t *testing.T) {
				t.Parallel()
				if e.native && native() == "" {
					skip.Because(t, skip.Compiler)
				}
				parallel := func(when string, f func(*testing.T)) { t.Run(when, func(t *testing.T) { t.Parallel(); f(t) }) }
				parallel("Import", func(t *testing.T) { duringImport(t, e, gpumux.Persistent) })
				parallel("ForkedImport", func(t *testing.T) { duringImport(t, e, gpumux.Fresh) })
				parallel("Middle", func(t *testing.T) { duringItem(t, e, newStand(t, gpumux.Persistent), 2, 5) })
				parallel("Forked", func(t *testing.T) { duringItem(t, e, newStand(t, gpumux.Fresh), 1, 3) })
				parallel("Spawned", func(t *testing.T) { duringItem(t, e, newSpawning(t), 1, 3) })
				if !e.late { // where a limit on time ends it, the position changes nothing
					parallel("First", func(t *testing.T) { duringItem(t, e, newStand(t, gpumux.Persistent), 0, 5) })
					parallel("Last", func(t *testing.T) { duringItem(t, e, newStand(t, gpumux.Persistent), 4, 5) })
					parallel("ForkedFirst", func(t *testing.T) { duringItem(t, e, newStand(t, gpumux.Fresh), 0, 3) })
					parallel("SpawnedFirst", func(t *testing.T) { duringItem(t, e, newSpawning(t), 0, 3) })
				}
				if e.thread {
					parallel("Idle", func(t *testing.T) { whileIdle(t, e) })
				}
				if !e.lives {
					parallel("Stopping", func(t *testing.T) { whileStopping(t, e) })
				}
			})
		}
	})
	undisturbed()
}

// duringItem ends the item at position at of n.
func duringItem(t *testing.T, e ending, s *stand, at, n int) {
	items := make([]any, n)
	for i := range items {
		items[i] = object{"i": i}
	}
	items[at] = object{"i": at, "end": e.how}
	call := slot.Call{Task: s.task("item"), Items: values(items...)}
	if e.late {
		call.Timeout = patience
	}
	got, err := s.run(call)
	if e.lives {
		require.NoError(t, err)
		require.Len(t, got, n)
		require.Equal(t, e.kind, got[at].Fault.Kind)
		require.Contains(t, got[at].Fault.Message, e.message)
		require.Contains(t, got[at].Output, "last words of "+e.how)
		require.Len(t, s.begun(), n)
		got = slices.Delete(got, at, at+1)
		require.Len(t, numbers(t, got), n-1)
		if s.mode == gpumux.Persistent {
			_, first, _ := strings.Cut(string(got[0].Value), ",")
			_, last, _ := strings.Cut(string(got[n-2].Value), ",")
			require.Equal(t, first, last, "the process lives on")
		}
		s.works()
		return
	}
	f := s.dead(err, e, e.kind, "run")
	require.Equal(t, []int{0, 1, 2, 3, 4}[:at], numbers(t, got), "what had finished is kept")
	require.Equal(t, []string{"0", "1", "2", "3", "4"}[:at+1], s.begun(), "nothing behind the faulty item has begun")
	require.Equal(t, s.mode == gpumux.Fresh || at == 0, f.Alone)
	s.works()
}

func duringImport(t *testing.T, e ending, mode gpumux.Mode) {
	s := newStand(t, mode)
	if e.late {
		s.limitStart()
	}
	got, err := s.run(slot.Call{Task: s.task("item", "END_IMPORT", e.how), Items: values(object{"i": 0})})
	require.Empty(t, got)
	kind := e.kind
	if e.loading != "" {
		kind = e.loading
	}
	f := s.dead(err, e, kind, "start")
	require.True(t, f.Alone)
	require.Empty(t, s.begun())
	s.works()
}

// whileIdle ends the process between two calls, which is nobody's fault.
func whileIdle(t *testing.T, e ending) {
	s := newStand(t, gpumux.Persistent)
	gate := filepath.Join(t.TempDir(), "gate")
	got, err := s.run(slot.Call{Task: s.task("item"), Items: values(object{"i": 0, "idle": e.how, "gate": gate})})
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, slot.Ready, s.State())
	require.NoError(t, os.WriteFile(gate, nil, 0o644))
	require.Eventually(t, func() bool { return s.State() == slot.Vacant }, time.Minute, 2*time.Millisecond)
	require.Empty(t, s.left())
	s.works()
}

// whileStopping ends the process in the middle of its own end.
func whileStopping(t *testing.T, e ending) {
	s := newStand(t, gpumux.Persistent)
	_, err := s.run(slot.Call{Task: s.task("item", "END_EXIT", e.how), Items: values(object{"i": 0})})
	require.NoError(t, err)
	// Another task takes the place of the first one, which is asked to end.
	s.works()
	require.Len(t, s.left(), 1)
}

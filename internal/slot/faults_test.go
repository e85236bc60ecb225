package slot_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/internal/test/rig"
)

// ending is one way in which a task process or an item ends badly. The field how is its
// name in testdata/faults.py.
type ending struct {
	how  string
	kind gpumux.FaultKind
	// exit and message are parts of the fault's fields of these names.
	exit, message string
	// lives means that only the item fails and the process goes on.
	lives bool
	// late means that only a limit on time ends it.
	late bool
	// loading is the kind of the fault during the import. Default: kind.
	loading gpumux.FaultKind
	// thread means that it can happen between items, on another thread.
	thread bool
	// native means that it needs testdata/native.cpp.
	native bool
	// gpu means that only a GPU ends so.
	gpu bool
	// brief means that in the import and in a fork it is as another ending.
	brief bool
}

var endings = []ending{
	{how: "segfault", kind: gpumux.FaultCrash, exit: "signal SIGSEGV", message: "Fatal Python error", thread: true},
	{how: "abort", kind: gpumux.FaultCrash, exit: "signal SIGABRT", thread: true, brief: true},
	{how: "kill", kind: gpumux.FaultCrash, exit: "signal SIGKILL", thread: true},
	{how: "term", kind: gpumux.FaultCrash, exit: "signal SIGTERM", thread: true, brief: true},
	{how: "bus", kind: gpumux.FaultCrash, exit: "signal SIGBUS", thread: true, brief: true},
	{how: "exit0", kind: gpumux.FaultCrash, exit: "exit status 0", thread: true},
	{how: "exit3", kind: gpumux.FaultCrash, exit: "exit status 3", thread: true, brief: true},
	{how: "terminate", kind: gpumux.FaultCrash, exit: "signal SIGABRT", thread: true, native: true, brief: true},
	{how: "overflow", kind: gpumux.FaultCrash, exit: "signal SIGSEGV", thread: true, native: true, brief: true},
	{how: "memory", kind: gpumux.FaultHostOOM},
	{how: "device_memory", kind: gpumux.FaultDeviceOOM, message: "CUDA out of memory"},
	{how: "poison", kind: gpumux.FaultCrash, message: "device-side assert triggered", gpu: true},
	{how: "lost", kind: gpumux.FaultDeviceLost, message: "GPU is lost", gpu: true},
	{how: "garbage", kind: gpumux.FaultCrash, message: "no header line"},
	{how: "length", kind: gpumux.FaultCrash, message: "a frame claims 4294967295 bytes", brief: true},
	{how: "close_wire", kind: gpumux.FaultCrash, message: "closed its wire and went on"},
	{how: "hang", kind: gpumux.FaultTimeout, late: true},
	{how: "stubborn", kind: gpumux.FaultTimeout, late: true, brief: true},
	{how: "spin", kind: gpumux.FaultTimeout, late: true, native: true, brief: true},
	{how: "stop", kind: gpumux.FaultTimeout, late: true},
	{how: "bomb", kind: gpumux.FaultTimeout, late: true, brief: true},
	{how: "sys_exit", kind: gpumux.FaultTaskError, lives: true, loading: gpumux.FaultBadInput, message: "sys.exit(3)"},
	{how: "interrupt", kind: gpumux.FaultTaskError, lives: true, loading: gpumux.FaultBadInput, brief: true},
	{how: "exception", kind: gpumux.FaultTaskError, lives: true, loading: gpumux.FaultBadInput, message: "missing"},
	{how: "recursion", kind: gpumux.FaultTaskError, lives: true, loading: gpumux.FaultBadInput, message: "maximum recursion depth", brief: true},
}

// neighbour is another slot that works all the time. The function that it returns stops
// it and checks its results.
func neighbour(t *testing.T) (ended func()) {
	s := slot.New(slot.Options{Name: "cpu/0", Device: "CPU", Runtime: runtimePath(t)})
	dir, err := filepath.Abs("testdata")
	require.NoError(t, err)
	task := launch.Task{Name: "item", Python: "faults.py:item", Dir: dir, Env: map[string]string{
		"LOG": os.DevNull, "PYTHONPYCACHEPREFIX": filepath.Join(os.TempDir(), "gpumux-test-runtime", "cache"),
	}}
	quit, over := make(chan struct{}), make(chan error, 1)
	var got []calls.Done
	go func() {
		over <- s.Run(context.Background(), task, slot.Call{Work: &gputest.Work{OnDone: func(d calls.Done) { got = append(got, d) }, From: func(yield func(calls.Item, error) bool) {
			for i := 0; ; i++ {
				select {
				case <-quit:
					return
				default:
				}
				if !yield(calls.Item{Index: int64(i), Value: fmt.Appendf(nil, `{"i": %d, "nap": 0.005}`, i)}, nil) {
					return
				}
			}
		}}})
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

// TestSlot_Faults tries every ending at the times that judge it differently, and some
// endings at every time. A neighbour beside it must not notice.
func TestSlot_Faults(t *testing.T) { tryEndings(t, "kill", "garbage") }

// TestLong_FaultsAtEveryTime tries every ending at every time in both modes.
func TestLong_FaultsAtEveryTime(t *testing.T) {
	var all []string
	for _, e := range endings {
		all = append(all, e.how)
	}
	tryEndings(t, all...)
}

// tryEndings tries every ending, and those of thorough at every time.
func tryEndings(t *testing.T, thorough ...string) {
	t.Helper()
	undisturbed := neighbour(t)
	t.Run("Table", func(t *testing.T) {
		for _, e := range endings {
			t.Run(e.how, func(t *testing.T) {
				t.Parallel()
				if e.native && native() == "" {
					rig.Because(t, rig.Compiler)
				}
				parallel := func(when string, f func(*testing.T)) { t.Run(when, func(t *testing.T) { t.Parallel(); f(t) }) }
				all := slices.Contains(thorough, e.how)
				parallel("Middle", func(t *testing.T) { duringItem(t, e, newStand(t, gpumux.ModePersistent), 2, 5) })
				if all || !e.brief {
					parallel("Import", func(t *testing.T) { duringImport(t, e, gpumux.ModePersistent) })
					parallel("Forked", func(t *testing.T) { duringItem(t, e, newStand(t, gpumux.ModeFresh), 1, 3) })
				}
				if !all {
					return
				}
				parallel("ForkedImport", func(t *testing.T) { duringImport(t, e, gpumux.ModeFresh) })
				parallel("Spawned", func(t *testing.T) { duringItem(t, e, newSpawning(t), 1, 3) })
				if !e.late { // the position does not matter where a limit on time ends the item
					parallel("First", func(t *testing.T) { duringItem(t, e, newStand(t, gpumux.ModePersistent), 0, 5) })
					parallel("Last", func(t *testing.T) { duringItem(t, e, newStand(t, gpumux.ModePersistent), 4, 5) })
					parallel("ForkedFirst", func(t *testing.T) { duringItem(t, e, newStand(t, gpumux.ModeFresh), 0, 3) })
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
	if e.gpu {
		s.on("GPU-1")
	}
	call := slot.Call{Work: work(items...)}
	if e.late {
		call.Timeout = patience
	}
	got, err := s.run(s.task("item"), call)
	if e.lives {
		require.NoError(t, err)
		require.Len(t, got, n)
		require.Equal(t, e.kind, got[at].Fault.Kind)
		require.Contains(t, got[at].Fault.Message, e.message)
		require.Contains(t, got[at].Printed, "last words of "+e.how)
		require.Len(t, s.begun(), n)
		got = slices.Delete(got, at, at+1)
		require.Len(t, numbers(t, got), n-1)
		if s.mode == gpumux.ModePersistent {
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
	require.Equal(t, s.mode == gpumux.ModeFresh || at == 0, f.Alone)
	s.works()
}

func duringImport(t *testing.T, e ending, mode gpumux.Mode) {
	s := newStand(t, mode)
	if e.gpu {
		s.on("GPU-1")
	}
	if e.late {
		s.limitStart()
	}
	got, err := s.run(s.task("item", "END_IMPORT", e.how), slot.Call{Work: work(object{"i": 0})})
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

// whileIdle ends the process between two calls. That is no item's fault.
func whileIdle(t *testing.T, e ending) {
	s := newStand(t, gpumux.ModePersistent)
	gate := filepath.Join(t.TempDir(), "gate")
	got, err := s.run(s.task("item"), slot.Call{Work: work(object{"i": 0, "idle": e.how, "gate": gate})})
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, slot.Ready, s.State())
	require.NoError(t, os.WriteFile(gate, nil, 0o644))
	require.Eventually(t, func() bool { return s.State() == slot.Vacant }, time.Minute, 2*time.Millisecond)
	require.Empty(t, s.left())
	s.works()
}

// whileStopping lets the process end badly while it is already ending.
func whileStopping(t *testing.T, e ending) {
	s := newStand(t, gpumux.ModePersistent)
	_, err := s.run(s.task("item", "END_EXIT", e.how), slot.Call{Work: work(object{"i": 0})})
	require.NoError(t, err)
	// Another task needs the slot, so the worker asks the first process to end.
	s.works()
	require.Len(t, s.left(), 1)
}

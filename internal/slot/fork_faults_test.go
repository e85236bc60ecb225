package slot_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/template"
	"github.com/gpumux/gpumux/internal/test/rig"
)

// When a fork would break or share something, the slot logs it once and starts new
// interpreters instead.
func TestFork_WhatCannotBeForkedIsSpawned(t *testing.T) {
	t.Parallel()
	const item = "\ndef item(x): return 'gpumux.process.template' in sys.modules\n"
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
			lines := f.logged("cannot be forked")
			require.Len(t, lines, 1)
			require.Contains(t, lines[0].ContextMap()["why"], test.why)
			require.Contains(t, lines[0].ContextMap()["advice"], "fresh: spawn")
			f.write("tasks.py", item)
			require.Equal(t, []string{"true"}, f.run(s, "item", 0), "what was changed is tried again")
		})
	}
}

// A fork that goes wrong later costs time and no item.
func TestFork_AForkThatGoesWrongFailsNoItem(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]string{"Hang": "time.sleep(600)", "Death": "os._exit(1)"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newForge(t, "def later():\n    if os.path.exists(os.environ['DIR'] + '/gate'): "+how+`
os.register_at_fork(after_in_child=later)
def item(x): return 'gpumux.process.template' in sys.modules
`)
			began := time.Now()
			require.Equal(t, []string{"true"}, f.run(f.slot("cpu/0", nil), "item", 0))
			good := time.Since(began)
			s := f.slot("cpu/1", func(o *slot.Options) { o.StartLimit = max(6*time.Second, 6*good) })
			require.Equal(t, []string{"true"}, f.run(s, "item", 0))
			require.NoError(t, os.WriteFile(filepath.Join(f.dir, "gate"), nil, 0o644))
			got := f.run(s, "item", ints(10)...)
			require.Len(t, got, 10)
			require.Equal(t, []string{"false", "false"}, got[8:], "those that waited already go first")
			require.Len(t, f.logged("get a new interpreter each"), 1)
		})
	}
}

func TestFork_NothingOutlivesAKilledWorker(t *testing.T) {
	t.Parallel()
	s := newStand(t, gpumux.ModeFresh)
	task := s.task("daemon")
	task.Mode = gpumux.ModeFresh
	worker, out := s.program("forking", task)
	rig.Wait(t, func() bool { return len(s.left()) >= 2 && len(s.templates()) >= 2 }, time.Minute, time.Millisecond)
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "running", strings.TrimSpace(line))
	require.NoError(t, worker.Process.Kill())
	io.Copy(io.Discard, out)
	worker.Wait()
	rig.Wait(t, func() bool { return len(s.marked()) == 0 }, time.Minute, 5*time.Millisecond)
}

// forking is a worker that the test kills. Two of its slots have a forked process each.
// One hangs; the other also has a descendant that left its group and hangs.
func forking() {
	var task launch.Task
	if err := json.Unmarshal([]byte(os.Getenv("TASK")), &task); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	all := template.NewSet(nil)
	var slots sync.WaitGroup
	for i, item := range []string{"hang", "fork and hang"} {
		s := slot.NewSharing(all, slot.Options{Name: fmt.Sprintf("cpu/%d", i), Device: "CPU", Runtime: os.Getenv("RUNTIME")})
		slots.Go(func() {
			s.Run(context.Background(), task, slot.Call{Work: work(item)})
		})
	}
	fmt.Println("running")
	slots.Wait()
	os.Exit(1)
}

func TestFork_ATemplateThatIsKilledIsMadeAnew(t *testing.T) {
	t.Parallel()
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
		require.Eventually(t, func() bool { return len(f.logged("a template ended")) == n+1 }, time.Minute, 2*time.Millisecond)
		require.True(t, f.seen(f.run(s, "item", 2))[0].forked, "round %d", n)
		require.Equal(t, n+2, f.imports())
	}

	// A running item goes on when its template dies.
	var got []calls.Done
	ended := make(chan error, 1)
	go func() {
		var err error
		got, err = f.try(s, "slow", 1)
		ended <- err
	}()
	require.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(f.dir, "begun")); return err == nil }, time.Minute, 2*time.Millisecond)
	parent := f.pid()
	require.NoError(t, syscall.Kill(parent, syscall.SIGKILL))
	rig.Wait(t, func() bool {
		return !slices.ContainsFunc(marked(t, f.mark), func(each string) bool { return strings.Contains(each, fmt.Sprintf("/proc/%d/", parent)) })
	}, time.Minute, 2*time.Millisecond)
	require.NoError(t, os.WriteFile(filepath.Join(f.dir, "gate"), nil, 0o644))
	err := <-ended
	require.Len(t, f.texts(got, err), 1)
	require.Empty(t, f.logged("get a new interpreter each"))
}

// Each costs the time of a fork that does not answer, and perhaps another template.
func TestFork_AWaitingChildThatIsKilledIsReplaced(t *testing.T) {
	t.Parallel()
	f := newForge(t, forked)
	s := f.slot("cpu/0", nil)
	for range 2 {
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
	require.LessOrEqual(t, f.imports(), 3)
}

// A child may die because the call's time is over. Then forking works, and no interpreter
// starts instead.
func TestFork_AChildThatLapsesIsNoReasonToSpawn(t *testing.T) {
	t.Parallel()
	f := newForge(t, `
import gpumux.process.wire
open(os.environ["DIR"] + "/imports", "a").write("x")
read = gpumux.process.wire.Wire.read
def once(wire):
    read(wire) # what the worker says to a process that it has taken in
    open(os.environ["DIR"] + "/died", "w").close()
    os._exit(1)
gpumux.process.wire.Wire.read = once
def item(x): return x
`)
	call := slot.Call{Work: work(1), Held: func() error {
		if _, err := os.Stat(filepath.Join(f.dir, "died")); err == nil {
			return calls.ErrLapsed
		}
		return nil
	}}
	_, err := run(t, f.slot("cpu/0", nil), f.task("item"), call)
	require.ErrorIs(t, err, calls.ErrLapsed)
	require.Equal(t, 1, f.imports())
	require.Empty(t, f.logged("could not be forked"))
}

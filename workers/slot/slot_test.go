package slot_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers/slot"
	"github.com/gpumux/gpumux/workers/slot/launch"
	"github.com/gpumux/gpumux/workers/slot/pyruntime"
	"github.com/gpumux/gpumux/workers/slot/wire"
)

// TestMain also is the programs that tests start: a worker to be killed, and a task process written in Go.
func TestMain(m *testing.M) {
	switch os.Getenv("GPUMUX_TEST_PROGRAM") {
	case "worker":
		doomed()
	case "faulty":
		faulty()
	case "abandoned":
		abandoned()
	case "starved":
		starved()
	case "forking":
		forking()
	case "task":
		err := wire.Serve(context.Background(), map[string]wire.Handler{
			"square": wire.Func(func(_ context.Context, n int) (int, error) {
				if n < 0 {
					return 0, errors.New("negative")
				}
				return n * n, nil
			}),
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		// Most of what parallel tests do here is waiting.
		if err := parallel.Value.Set(strconv.Itoa(max(8, runtime.GOMAXPROCS(0)))); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	if nativeDir != "" {
		os.RemoveAll(nativeDir)
	}
	os.Exit(code)
}

const tasks = `
import gpumux, json, logging, os, signal, subprocess, sys, time, threading

def double(x): return 2 * x
def pid(x): return os.getpid()
def ppid(x): return [os.getpid(), os.getpgid(0)]
def fail_on_3(x):
    if x == 3: raise ValueError("three is not allowed")
    return x
def environ(x): return dict(os.environ)
def hello(x):
    print("hello", x)
    os.write(2, b"raw %d\n" % x)
    subprocess.run(["echo", "child", str(x)])
    logging.info("logged %s", x)
    return x
def die(x):
    if not isinstance(x, str): return x
    print("last words of", x, flush=True)
    if x == "exit0": os._exit(0)
    if x == "exit3": os._exit(3)
    os.kill(os.getpid(), getattr(signal, x))
    time.sleep(60)
def hang(x):
    if x == "stubborn": signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if x: time.sleep(600)
    return x
def family(x):
    # a child in the group, and one that leaves it
    a = subprocess.Popen(["sleep", "600"])
    b = subprocess.Popen(["sleep", "600"], start_new_session=True)
    open(x, "w").write(f"{os.getpid()} {a.pid} {b.pid}")
    if x.endswith("die"): os.kill(os.getpid(), signal.SIGKILL)
    if x.endswith("hang"): time.sleep(600)
    return x
def garbage(x):
    for fd in os.listdir("/proc/self/fd"):
        try:
            if "socket" in os.readlink("/proc/self/fd/" + fd): os.write(int(fd), b"\x00\x00\x00\x05hello")
        except OSError: pass
    time.sleep(60)
def close_wire(x):
    os.closerange(3, 2048)
    time.sleep(60)
def flaky(path):
    n = int(open(path).read() or 0) + 1 if os.path.exists(path) else 1
    open(path, "w").write(str(n))
    if n < 3: raise RuntimeError(f"try {n}")
    return [n, os.getpid()]
def touch_then_fail(x):
    open(x["file"], "a").write(str(x["i"]) + "\n")
    if x["i"] == 2: raise MemoryError("no more")
    return x["i"]
def flood(x):
    for _ in range(x): os.write(1, b"x" * 65536)
    return x
`

// folder writes the tasks into a folder of the test's own.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tasks.py"), []byte(tasks), 0o644))
	return dir
}

func runtimePath(t testing.TB) string {
	t.Helper()
	path, err := pyruntime.Install(filepath.Join(os.TempDir(), "gpumux-test-runtime"))
	require.NoError(t, err)
	return path
}

func newSlot(t *testing.T) *slot.Slot {
	t.Helper()
	before := descendants(t)
	s := slot.New(slot.Options{Name: "cpu/0", Device: "CPU", Runtime: runtimePath(t), Grace: 300 * time.Millisecond})
	t.Cleanup(func() {
		require.NoError(t, s.Stop(context.Background()))
		require.Equal(t, slot.Stopped, s.State())
		require.ElementsMatch(t, before, descendants(t), "every process of the slot is gone")
	})
	return s
}

// descendants are the living children of this process, without the sweeper.
func descendants(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("ps", "--no-headers", "-o", "pid,stat,args", "--ppid", strconv.Itoa(os.Getpid())).Output()
	if len(out) == 0 {
		return nil
	}
	require.NoError(t, err)
	var list []string
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		if !strings.Contains(line, "gpumux-sweeper") && !strings.Contains(line, " ps ") && !strings.Contains(line, "defunct") {
			list = append(list, line)
		}
	}
	return list
}

func python(dir, function string) launch.Task {
	return launch.Task{Name: function, Python: "tasks.py:" + function, Dir: dir}
}

// values makes items of anything that is JSON.
func values(items ...any) iter.Seq2[gpumux.Item, error] {
	return func(yield func(gpumux.Item, error) bool) {
		for i, item := range items {
			raw, err := json.Marshal(item)
			if !yield(gpumux.Item{Index: int64(i), Value: raw}, err) {
				return
			}
		}
	}
}

func ints(n int) []any {
	list := make([]any, n)
	for i := range list {
		list[i] = i
	}
	return list
}

func run(t *testing.T, s *slot.Slot, call slot.Call) ([]slot.Done, error) {
	t.Helper()
	var got []slot.Done
	call.Done = func(d slot.Done) { got = append(got, d) }
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	err := s.Run(ctx, call)
	return got, err
}

func fault(t *testing.T, err error) *gpumux.Fault {
	t.Helper()
	var f *gpumux.Fault
	require.ErrorAs(t, err, &f)
	return f
}

func TestSlot_PersistentKeepsItsProcess(t *testing.T) {
	s, dir := newSlot(t), folder(t)
	pids := map[string]bool{}
	for range 2 {
		got, err := run(t, s, slot.Call{Task: python(dir, "pid"), Items: values(ints(500)...)})
		require.NoError(t, err)
		require.Len(t, got, 500)
		for i, d := range got {
			require.EqualValues(t, i, d.Index)
			pids[string(d.Value)] = true
		}
	}
	require.Len(t, pids, 1)
	require.Equal(t, slot.Ready, s.State())
	require.Equal(t, "pid", s.Task())
}

func TestSlot_FreshHasAProcessPerItem(t *testing.T) {
	s, dir := newSlot(t), folder(t)
	got, err := run(t, s, slot.Call{Task: python(dir, "pid"), Mode: gpumux.Fresh, Items: values(ints(8)...)})
	require.NoError(t, err)
	pids := map[string]bool{}
	for _, d := range got {
		pids[string(d.Value)] = true
	}
	require.Len(t, pids, 8)
	require.Equal(t, slot.Vacant, s.State())
}

func TestSlot_RecyclesAfterItsItems(t *testing.T) {
	s, dir := newSlot(t), folder(t)
	task := python(dir, "pid")
	task.RecycleItems = 10
	got, err := run(t, s, slot.Call{Task: task, Items: values(ints(25)...)})
	require.NoError(t, err)
	count := map[string]int{}
	for _, d := range got {
		count[string(d.Value)]++
	}
	require.ElementsMatch(t, []int{10, 10, 5}, slices.Collect(func(yield func(int) bool) {
		for _, n := range count {
			if !yield(n) {
				return
			}
		}
	}))
}

func TestSlot_AnotherTaskGetsAnotherProcess(t *testing.T) {
	s, dir := newSlot(t), folder(t)
	got, err := run(t, s, slot.Call{Task: python(dir, "double"), Items: values(4)})
	require.NoError(t, err)
	require.Equal(t, "8", string(got[0].Value))
	_, err = run(t, s, slot.Call{Task: python(dir, "pid"), Items: values(4)})
	require.NoError(t, err)
	require.Equal(t, "pid", s.Task())
}

func TestSlot_NoItemsNeedNoProcess(t *testing.T) {
	s, dir := newSlot(t), folder(t)
	got, err := run(t, s, slot.Call{Task: python(dir, "double"), Items: values()})
	require.NoError(t, err)
	require.Empty(t, got)
	require.Equal(t, slot.Vacant, s.State())
}

func TestSlot_AnExceptionIsTheItemsFault(t *testing.T) {
	for _, mode := range []gpumux.Mode{gpumux.Persistent, gpumux.Fresh} {
		s, dir := newSlot(t), folder(t)
		got, err := run(t, s, slot.Call{Task: python(dir, "fail_on_3"), Mode: mode, Items: values(ints(6)...)})
		require.NoError(t, err)
		require.Len(t, got, 6)
		for i, d := range got {
			if i != 3 {
				require.Equal(t, strconv.Itoa(i), string(d.Value))
				continue
			}
			require.Equal(t, gpumux.TaskError, d.Fault.Kind)
			require.Equal(t, "ValueError", d.Fault.Class)
			require.Equal(t, "three is not allowed", d.Fault.Message)
			require.Contains(t, d.Fault.Traceback, "fail_on_3")
			require.Equal(t, "cpu/0", d.Fault.Slot)
			require.Equal(t, 1, d.Fault.Attempts)
		}
	}
}

func TestSlot_AttemptsTryAnExceptionAgain(t *testing.T) {
	for _, mode := range []gpumux.Mode{gpumux.Persistent, gpumux.Fresh} {
		s, dir := newSlot(t), folder(t)
		got, err := run(t, s, slot.Call{Task: python(dir, "flaky"), Mode: mode, Attempts: 3, Items: values(filepath.Join(dir, "n"))})
		require.NoError(t, err)
		require.Nil(t, got[0].Fault, "%v", got[0].Fault)
		require.True(t, strings.HasPrefix(string(got[0].Value), "[3,"))
		got, err = run(t, s, slot.Call{Task: python(dir, "flaky"), Mode: mode, Attempts: 2, Items: values(filepath.Join(dir, "m"))})
		require.NoError(t, err)
		require.Equal(t, "try 2", got[0].Fault.Message)
		require.Equal(t, 2, got[0].Fault.Attempts)
	}
}

func TestSlot_OutputStandsUnderItsItem(t *testing.T) {
	for _, mode := range []gpumux.Mode{gpumux.Persistent, gpumux.Fresh} {
		s, dir := newSlot(t), folder(t)
		got, err := run(t, s, slot.Call{Task: python(dir, "hello"), Mode: mode, Items: values(ints(20)...)})
		require.NoError(t, err)
		for i, d := range got {
			require.Equal(t, fmt.Sprintf("hello %d\nraw %d\nchild %d\nINFO root: logged %d\n", i, i, i, i), d.Output)
		}
	}
}

func TestSlot_EndlessOutputIsCutInTheMiddle(t *testing.T) {
	s, dir := newSlot(t), folder(t)
	got, err := run(t, s, slot.Call{Task: python(dir, "flood"), Items: values(1000, 0)})
	require.NoError(t, err)
	require.Less(t, len(got[0].Output), 20<<10)
	require.Contains(t, got[0].Output, "bytes left out")
	require.Empty(t, got[1].Output)
}

// How a process dies, what it is taken for, and that the slot runs the next item all the same.
func TestSlot_EveryDeathIsNamed(t *testing.T) {
	for how, want := range map[string]struct {
		kind gpumux.Kind
		exit string
	}{
		"SIGSEGV": {gpumux.Crash, "SIGSEGV"}, "SIGABRT": {gpumux.Crash, "SIGABRT"}, "SIGKILL": {gpumux.Crash, "SIGKILL"},
		"SIGBUS": {gpumux.Crash, "SIGBUS"}, "exit0": {gpumux.Crash, "0"}, "exit3": {gpumux.Crash, "3"},
	} {
		for _, mode := range []gpumux.Mode{gpumux.Persistent, gpumux.Fresh} {
			t.Run(how+"/"+string(mode), func(t *testing.T) {
				s, dir := newSlot(t), folder(t)
				got, err := run(t, s, slot.Call{Task: python(dir, "die"), Mode: mode, Items: values(1, 2, how, 4)})
				f := fault(t, err)
				require.Len(t, got, 2, "what had finished is kept")
				require.Equal(t, want.kind, f.Kind)
				require.Contains(t, f.Exit, want.exit)
				require.Contains(t, f.Tail, "last words of "+how)
				require.Equal(t, "run", f.Op)
				require.Equal(t, mode == gpumux.Fresh, f.Alone)
				require.Equal(t, slot.Vacant, s.State())
				got, err = run(t, s, slot.Call{Task: python(dir, "die"), Mode: mode, Items: values(4)})
				require.NoError(t, err)
				require.Equal(t, "4", string(got[0].Value))
			})
		}
	}
}

func TestSlot_AHangIsKilled(t *testing.T) {
	for _, how := range []string{"polite", "stubborn"} {
		s, dir := newSlot(t), folder(t)
		got, err := run(t, s, slot.Call{Task: python(dir, "hang"), Timeout: 500 * time.Millisecond, Items: values("", how)})
		f := fault(t, err)
		require.Len(t, got, 1)
		require.Equal(t, gpumux.Timeout, f.Kind)
		require.False(t, f.Alone)
	}
}

func TestSlot_ABrokenWireIsACrash(t *testing.T) {
	for _, function := range []string{"garbage", "close_wire"} {
		s, dir := newSlot(t), folder(t)
		_, err := run(t, s, slot.Call{Task: python(dir, function), Items: values(1)})
		require.Equal(t, gpumux.Crash, fault(t, err).Kind, function)
	}
}

func TestSlot_AMemoryErrorEndsTheProcessBeforeTheNextItem(t *testing.T) {
	s, dir := newSlot(t), folder(t)
	log := filepath.Join(dir, "log")
	items := make([]any, 6)
	for i := range items {
		items[i] = map[string]any{"i": i, "file": log}
	}
	got, err := run(t, s, slot.Call{Task: python(dir, "touch_then_fail"), Items: values(items...)})
	require.Equal(t, gpumux.HostOOM, fault(t, err).Kind)
	require.Len(t, got, 2)
	ran, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Equal(t, "0\n1\n2\n", string(ran), "no item behind the faulty one has begun")
}

func TestSlot_DescendantsDieWithTheProcess(t *testing.T) {
	for _, how := range []string{"return", "die", "hang"} {
		t.Run(how, func(t *testing.T) {
			s, dir := newSlot(t), folder(t)
			file := filepath.Join(dir, how)
			_, err := run(t, s, slot.Call{Task: python(dir, "family"), Mode: gpumux.Fresh, Timeout: time.Second, Items: values(file)})
			require.Equal(t, how == "return", err == nil)
			for _, pid := range pidsIn(t, file) {
				require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "process %d lives", pid)
			}
		})
	}
}

func pidsIn(t *testing.T, file string) []int {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	var pids []int
	for _, field := range strings.Fields(string(data)) {
		pid, err := strconv.Atoi(field)
		require.NoError(t, err)
		pids = append(pids, pid)
	}
	return pids
}

func TestSlot_CancellationReachesTheProcess(t *testing.T) {
	s, dir := newSlot(t), folder(t)
	file := filepath.Join(dir, "hang")
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("enough")
	ended := make(chan error, 1)
	go func() {
		ended <- s.Run(ctx, slot.Call{Task: python(dir, "family"), Items: values(file), Done: func(slot.Done) {}})
	}()
	require.Eventually(t, func() bool { data, _ := os.ReadFile(file); return len(data) > 0 }, time.Minute, time.Millisecond)
	cancel(why)
	require.ErrorIs(t, <-ended, why)
	for _, pid := range pidsIn(t, file) {
		require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
	}
	require.Equal(t, slot.Vacant, s.State())
}

func TestSlot_StopEndsARunningCall(t *testing.T) {
	s, dir := newSlot(t), folder(t)
	ended := make(chan error)
	go func() {
		ended <- s.Run(context.Background(), slot.Call{Task: python(dir, "hang"), Items: values("long"), Done: func(slot.Done) {}})
	}()
	require.Eventually(t, func() bool { return s.State() == slot.Busy }, time.Minute, time.Millisecond)
	require.NoError(t, s.Stop(context.Background()))
	require.ErrorIs(t, <-ended, slot.ErrStopped)
	require.ErrorIs(t, s.Run(context.Background(), slot.Call{}), slot.ErrStopped)
}

func TestSlot_ABadTaskIsBadInput(t *testing.T) {
	s, dir := newSlot(t), folder(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "broken.py"), []byte("import no_such_module\ndef f(x): return x\n"), 0o644))
	_, err := run(t, s, slot.Call{Task: launch.Task{Name: "f", Python: "broken.py:f", Dir: dir}, Items: values(1)})
	f := fault(t, err)
	require.Equal(t, gpumux.BadInput, f.Kind)
	require.Equal(t, "start", f.Op)
	require.Contains(t, f.Message, "no_such_module")
	require.Contains(t, f.Traceback, "broken.py")

	_, err = run(t, s, slot.Call{Task: python(dir, "dubble"), Items: values(1)})
	f = fault(t, err)
	require.Equal(t, gpumux.BadInput, f.Kind)
	require.Contains(t, f.Message, "double", "it says what there is")

	_, err = run(t, s, slot.Call{Task: launch.Task{Name: "f", Python: "tasks.py:double", Dir: dir, Interpreter: "no-such-python"}, Items: values(1)})
	f = fault(t, err)
	require.Equal(t, gpumux.BadInput, f.Kind)
	require.Contains(t, f.Error(), "no-such-python")
}

// The Python is asked which program it is, before it runs a task, and its environment is as open as a task's.
func TestSlot_AsksThePythonWithoutCredentials(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	s, dir := newSlot(t), folder(t)
	seen, python := filepath.Join(dir, "seen"), filepath.Join(dir, "python")
	require.NoError(t, os.WriteFile(python, []byte("#!/bin/sh\nenv >>'"+seen+"'\nexec python3 \"$@\"\n"), 0o755))
	task := launch.Task{Name: "double", Python: "tasks.py:double", Dir: dir, Interpreter: python}
	_, err := run(t, s, slot.Call{Task: task, Items: values(1)})
	require.NoError(t, err)
	text, err := os.ReadFile(seen)
	require.NoError(t, err)
	require.Contains(t, string(text), "PATH=")
	require.NotContains(t, string(text), "AWS_SECRET_ACCESS_KEY")
}

// A folder's task is what its file defines, whatever the name stands for once the file has run.
func TestSlot_OwnRefusesWhatAModuleHasFromElsewhere(t *testing.T) {
	s, dir := newSlot(t), folder(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "taken.py"), []byte(`import functools
def system(item): ...
from os import *
def popen(item): ...
popen = __import__("os").popen
@functools.lru_cache
def cached(item): return item + 1
def wrap(function): return functools.wraps(function)(lambda item: function(item))
@wrap
def wrapped(item): return item + 2
`), 0o644))
	for _, mode := range []gpumux.Mode{gpumux.Persistent, gpumux.Fresh} {
		for _, function := range []string{"system", "popen"} {
			task := launch.Task{Name: function, Python: "taken.py:" + function, Dir: dir, Own: true, Mode: mode}
			_, err := run(t, s, slot.Call{Task: task, Items: values("touch ran")})
			f := fault(t, err)
			require.Equal(t, gpumux.BadInput, f.Kind)
			require.Contains(t, f.Message, function+" in taken.py comes from ")
			require.NoFileExists(t, filepath.Join(dir, "ran"))
		}
		for function, want := range map[string]string{"cached": "2", "wrapped": "3"} {
			task := launch.Task{Name: function, Python: "taken.py:" + function, Dir: dir, Own: true, Mode: mode}
			got, err := run(t, s, slot.Call{Task: task, Items: values(1)})
			require.NoError(t, err)
			require.JSONEq(t, want, string(got[0].Value))
		}
	}
}

func TestSlot_TheEnvironmentIsClean(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("TEMPORAL_API_KEY", "secret")
	t.Setenv("WANTED", "yes")
	dir := folder(t)
	s := slot.New(slot.Options{Name: "gpu/0", Device: "GPU-1", Runtime: runtimePath(t), Env: map[string]string{"CUDA_VISIBLE_DEVICES": "GPU-1", "OMP_NUM_THREADS": "1"}})
	defer s.Stop(context.Background())
	task := python(dir, "environ")
	task.PassEnv = []string{"WANTED"}
	task.Env = map[string]string{"MINE": "1", "CUDA_VISIBLE_DEVICES": "0", "OMP_NUM_THREADS": "4"}
	got, err := run(t, s, slot.Call{Task: task, Items: values(1)})
	require.NoError(t, err)
	var env map[string]string
	require.NoError(t, json.Unmarshal(got[0].Value, &env))
	require.NotContains(t, env, "AWS_SECRET_ACCESS_KEY")
	require.NotContains(t, env, "TEMPORAL_API_KEY")
	require.Equal(t, "yes", env["WANTED"])
	require.Equal(t, "1", env["MINE"])
	require.Equal(t, "4", env["OMP_NUM_THREADS"], "a task may choose its threads")
	require.Equal(t, "GPU-1", env["CUDA_VISIBLE_DEVICES"], "but not its device")
}

func TestSlot_CommandsTakeTheItemAndGiveTheResult(t *testing.T) {
	s, dir := newSlot(t), folder(t)
	command := func(text bool, argv ...string) slot.Call {
		return slot.Call{Task: launch.Task{Name: "c", Command: argv, Dir: dir, Text: text}, Timeout: 500 * time.Millisecond}
	}
	call := command(false, "sh", "-c", `read x; echo working >&2; echo "{\"got\": $x}"`)
	call.Items = values(1, 2)
	got, err := run(t, s, call)
	require.NoError(t, err)
	require.Equal(t, `{"got": 2}`, string(got[1].Value))
	require.Equal(t, "working\n", got[1].Output)

	call = command(true, "cat")
	call.Items = values("a\"b")
	got, err = run(t, s, call)
	require.NoError(t, err)
	require.Equal(t, `"\"a\\\"b\""`, string(got[0].Value))

	call = command(false, "sh", "-c", "echo no; echo why >&2; exit 3")
	call.Items = values(1, 2)
	got, err = run(t, s, call)
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.Equal(t, gpumux.TaskError, got[0].Fault.Kind)
	require.Contains(t, got[0].Fault.Error(), "3")
	require.Equal(t, "why\n", got[0].Output)

	call = command(false, "echo", "not json")
	call.Items = values(1)
	got, err = run(t, s, call)
	require.NoError(t, err)
	require.Contains(t, got[0].Fault.Error(), "no JSON value")

	call = command(false, "sleep", "60")
	call.Items = values(1)
	_, err = run(t, s, call)
	require.Equal(t, gpumux.Timeout, fault(t, err).Kind)

	call = command(false, "sh", "-c", "kill -SEGV $$")
	call.Items = values(1)
	_, err = run(t, s, call)
	require.Equal(t, gpumux.Crash, fault(t, err).Kind)

	call = command(false, "./missing")
	call.Items = values(1)
	_, err = run(t, s, call)
	require.Equal(t, gpumux.BadInput, fault(t, err).Kind)
}

func TestSlot_AGoTaskProcessSpeaksTheWire(t *testing.T) {
	s := newSlot(t)
	task := launch.Task{Name: "square", Program: []string{os.Args[0]}, Env: map[string]string{"GPUMUX_TEST_PROGRAM": "task"}}
	task.Env = map[string]string{}
	t.Setenv("GPUMUX_TEST_PROGRAM", "task")
	task.PassEnv = []string{"GPUMUX_TEST_PROGRAM"}
	got, err := run(t, s, slot.Call{Task: task, Items: values(3, -1, 5)})
	require.NoError(t, err)
	require.Equal(t, "9", string(got[0].Value))
	require.Equal(t, "negative", got[1].Fault.Message)
	require.Equal(t, "25", string(got[2].Value))
}

func TestSlot_ItemsThatCannotBeReadEndTheCall(t *testing.T) {
	s, dir := newSlot(t), folder(t)
	broken := errors.New("disk on fire")
	_, err := run(t, s, slot.Call{Task: python(dir, "double"), Items: func(yield func(gpumux.Item, error) bool) {
		if yield(gpumux.Item{Value: []byte("1")}, nil) {
			yield(gpumux.Item{}, broken)
		}
	}})
	require.ErrorIs(t, err, broken)
}

// doomed is a worker that runs a family of processes until somebody kills it.
func doomed() {
	s := slot.New(slot.Options{Name: "cpu/0", Device: "CPU", Runtime: os.Getenv("RUNTIME")})
	task := launch.Task{Name: "family", Python: "tasks.py:family", Dir: os.Getenv("DIR")}
	item, _ := json.Marshal(os.Getenv("DIR") + "/hang")
	fmt.Println("running")
	err := s.Run(context.Background(), slot.Call{Task: task, Done: func(slot.Done) {}, Items: func(yield func(gpumux.Item, error) bool) {
		yield(gpumux.Item{Value: item}, nil)
	}})
	fmt.Println(err)
	os.Exit(1)
}

func TestSlot_NothingOutlivesAKilledWorker(t *testing.T) {
	dir := folder(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "GPUMUX_TEST_PROGRAM=worker", "DIR="+dir, "RUNTIME="+runtimePath(t))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	file := filepath.Join(dir, "hang")
	require.Eventually(t, func() bool { data, _ := os.ReadFile(file); return len(strings.Fields(string(data))) == 3 }, time.Minute, time.Millisecond)
	require.NoError(t, cmd.Process.Kill())
	io.Copy(io.Discard, out)
	cmd.Wait()
	for _, pid := range pidsIn(t, file) {
		require.Eventually(t, func() bool { return gone(pid) }, time.Minute, time.Millisecond, "process %d lives on", pid)
	}
}

// gone reports whether a process has ended, reaped or not: whose child an orphan becomes is the system's affair.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}

func TestState_TheTableIsTheOneInTheDocs(t *testing.T) {
	for _, from := range slot.States() {
		require.NotContains(t, from.Next(), from)
	}
	require.Equal(t, []slot.State{slot.Reclaiming}, slot.Poisoned.Next(), "a poisoned process never runs another item")
	require.Empty(t, slot.Stopped.Next())
}

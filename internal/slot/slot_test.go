package slot_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/process"
	"github.com/gpumux/gpumux/internal/runtimes"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/internal/test/wiretest"
)

// TestMain is also the programs that tests start, such as a worker to kill and a task
// process in Go.
func TestMain(m *testing.M) {
	process.Dedicate()
	switch os.Getenv("GPUMUX_TEST_PROGRAM") {
	case "faulty":
		faulty()
	case "abandoned":
		abandoned()
	case "starved":
		starved()
	case "forking":
		forking()
	case "task":
		err := wiretest.Serve(func(item json.RawMessage) (json.RawMessage, error) {
			n, err := strconv.Atoi(string(item))
			if n < 0 {
				err = errors.New("negative")
			}
			return strconv.AppendInt(nil, int64(n*n), 10), err
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		// Parallel tests mostly wait here.
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
def flaky(path):
    n = int(open(path).read() or 0) + 1 if os.path.exists(path) else 1
    open(path, "w").write(str(n))
    if n < 3: raise RuntimeError(f"try {n}")
    return [n, os.getpid()]
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
	path, err := runtimes.Python(filepath.Join(os.TempDir(), "gpumux-test-runtime"))
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

// work has these items, which can be JSON.
func work(items ...any) *gputest.Work { return &gputest.Work{From: gputest.Values(items...)} }

func ints(n int) []any {
	list := make([]any, n)
	for i := range list {
		list[i] = i
	}
	return list
}

func run(t *testing.T, s *slot.Slot, task launch.Task, call slot.Call) ([]calls.Done, error) {
	t.Helper()
	var got []calls.Done
	call.Work.(*gputest.Work).OnDone = func(d calls.Done) { got = append(got, d) }
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	err := s.Run(ctx, task, call)
	return got, err
}

func fault(t *testing.T, err error) *gpumux.Fault {
	t.Helper()
	var f *gpumux.Fault
	require.ErrorAs(t, err, &f)
	return f
}

func TestSlot_RecyclesAfterItsItems(t *testing.T) {
	s, dir := newSlot(t), folder(t)
	task := python(dir, "pid")
	task.Recycle = 10
	got, err := run(t, s, task, slot.Call{Work: work(ints(25)...)})
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

func TestSlot_ItemsThatCannotBeReadEndTheCall(t *testing.T) {
	s, dir := newSlot(t), folder(t)
	broken := errors.New("disk on fire")
	_, err := run(t, s, python(dir, "double"), slot.Call{Work: &gputest.Work{From: func(yield func(calls.Item, error) bool) {
		if yield(calls.Item{Value: []byte("1")}, nil) {
			yield(calls.Item{}, broken)
		}
	}}})
	require.ErrorIs(t, err, broken)
}

package memory

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/runtimes"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/gputest"
)

const memoryTasks = `
import gc, mmap, os, subprocess, sys, time

def touched(mb): return b"x" * (mb << 20)

def hold(item):
    # {"mb": n, "for": seconds, "mark": file}: the file says when the memory was there
    block = touched(item["mb"])
    if "mark" in item:
        with open(item["mark"] + ".tmp", "w") as f: f.write(repr(time.time()))
        os.rename(item["mark"] + ".tmp", item["mark"])
    time.sleep(item.get("for", 0))
    return len(block) >> 20
def fill(mb):
    # in one call of the kernel, which holds the lock of the process's memory as long as it lasts (MAP_POPULATE)
    block = mmap.mmap(-1, mb << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x8000)
    if mb > 1000: time.sleep(60)
    return len(block) >> 20
def child(mb):
    code = f"import time; x = b'x' * ({mb} << 20); time.sleep(60)"
    # a grandchild, by way of a shell
    return subprocess.run(["sh", "-c", '"$0" -c "$1"; true', sys.executable, code]).returncode
def forks(mb):
    block = touched(mb)
    pids = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            time.sleep(0.6)
            os._exit(len(block) & 1)
        pids.append(pid)
    return [os.waitpid(pid, 0)[1] for pid in pids]
kept = []
def leak(mb):
    kept.append(touched(mb))
    return os.getpid()
def litter(mb):
    gc.disable()
    cycle = [touched(mb)]
    cycle.append(cycle)
    return os.getpid()
def vram(item):
    # {"mb": n, "for": seconds, "until": file}: it ends once the file is there
    # what the imitated driver says of this process
    path = os.path.join(os.environ["DRIVER"], str(os.getpid()))
    with open(path + ".tmp", "w") as f: f.write("%s %d\n" % (os.environ["UUID"], item["mb"] << 20))
    os.rename(path + ".tmp", path)
    while "until" in item and not os.path.exists(item["until"]): time.sleep(0.01)
    time.sleep(item.get("for", 0))
    return item["mb"]
`

// workbench makes slots that one watch follows.
type workbench struct {
	*watch
	t   *testing.T
	dir string
	env map[string]string
	log *observer.ObservedLogs
	to  *zap.Logger
}

func newWorkbench(t *testing.T, devices memories) *workbench {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tasks.py"), []byte(memoryTasks), 0o644))
	core, seen := observer.New(zap.DebugLevel)
	b := &workbench{t: t, dir: dir, env: map[string]string{}, log: seen, to: zap.New(core)}
	b.watch = newWatch(devices, b.to)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { b.watch.run(ctx) })
	t.Cleanup(func() {
		cancel()
		all.Wait()
		require.Empty(t, b.watch.processes, "every process was let go")
	})
	return b
}

func (b *workbench) slot(device string, memory gpumux.Size, change ...func(*slot.Options)) *slot.Slot {
	b.t.Helper()
	runtime, err := runtimes.Python(filepath.Join(os.TempDir(), "gpumux-test-runtime"))
	require.NoError(b.t, err)
	o := slot.Options{
		Name: "pool/0", Device: device, Memory: memory, Runtime: runtime, Watch: b.watch, Env: b.env,
		Grace: 300 * time.Millisecond, Log: b.to,
	}
	for _, f := range change {
		f(&o)
	}
	s := slot.New(o)
	b.t.Cleanup(func() { require.NoError(b.t, s.Stop(context.Background())) })
	return s
}

func (b *workbench) task(function string) launch.Task {
	return launch.Task{Name: function, Python: "tasks.py:" + function, Dir: b.dir, Mode: gpumux.ModePersistent}
}

func run(s *slot.Slot, task launch.Task, items ...any) ([]calls.Done, error) {
	var got []calls.Done
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	err := s.Run(ctx, task, slot.Call{Work: &gputest.Work{From: func(yield func(calls.Item, error) bool) {
		for i, item := range items {
			raw, err := json.Marshal(item)
			if !yield(calls.Item{Index: int64(i), Value: raw}, err) {
				return
			}
		}
	}, OnDone: func(d calls.Done) { got = append(got, d) }}})
	return got, err
}

type block struct {
	MB    int     `json:"mb"`
	For   float64 `json:"for,omitempty"`
	Mark  string  `json:"mark,omitempty"`
	Until string  `json:"until,omitempty"`
}

// sees returns the name of a file that appears once the watch has read this many bytes of
// a process. An item can wait for it.
func (b *workbench) sees(bytes int64) string {
	file := filepath.Join(b.dir, fmt.Sprintf("seen-%d", bytes))
	seen := func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		for f := range b.processes {
			if f.peak >= bytes {
				return true
			}
		}
		return false
	}
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for !seen() {
			select {
			case <-b.t.Context().Done():
				return
			case <-tick.C:
			}
		}
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			b.t.Error(err)
		}
	}()
	return file
}

func same(item any, n int) []any {
	list := make([]any, n)
	for i := range list {
		list[i] = item
	}
	return list
}

func asFault(t *testing.T, err error) *gpumux.Fault {
	t.Helper()
	var f *gpumux.Fault
	require.ErrorAs(t, err, &f)
	return f
}

// sleeper is a process that does nothing until the test ends.
func sleeper(t *testing.T) (pid int) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}

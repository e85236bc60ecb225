package memory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
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
	"github.com/gpumux/gpumux/workers/slot/launch"
	"github.com/gpumux/gpumux/workers/slot/pyruntime"
	"github.com/gpumux/gpumux/workers/slot/session"
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

// bench is slots with a watch over them.
type workbench struct {
	*watch
	t   *testing.T
	dir string
	env map[string]string
	log *observer.ObservedLogs
	to  *zap.Logger
}

func newWorkbench(t *testing.T, devices memories, hostPIDs bool) *workbench {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tasks.py"), []byte(memoryTasks), 0o644))
	core, seen := observer.New(zap.DebugLevel)
	b := &workbench{t: t, dir: dir, env: map[string]string{}, log: seen, to: zap.New(core)}
	b.watch = newWatch(devices, hostPIDs, b.to)
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
	runtime, err := pyruntime.Install(filepath.Join(os.TempDir(), "gpumux-test-runtime"))
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
	return launch.Task{Name: function, Python: "tasks.py:" + function, Dir: b.dir, Mode: gpumux.Persistent}
}

func run(s *slot.Slot, task launch.Task, items ...any) ([]slot.Done, error) {
	var got []slot.Done
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	err := s.Run(ctx, slot.Call{
		Task: task,
		Items: func(yield func(gpumux.Item, error) bool) {
			for i, item := range items {
				raw, err := json.Marshal(item)
				if !yield(gpumux.Item{Index: int64(i), Value: raw}, err) {
					return
				}
			}
		},
		Done: func(d slot.Done) { got = append(got, d) },
	})
	return got, err
}

type block struct {
	MB    int     `json:"mb"`
	For   float64 `json:"for,omitempty"`
	Mark  string  `json:"mark,omitempty"`
	Until string  `json:"until,omitempty"`
}

// sees is a file that comes to be once the watch has read so many bytes of a process, so that an item can wait for it.
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

func TestWatch_EndsWhatPassesItsBudget(t *testing.T) {
	b := newWorkbench(t, nil, false)
	neighbour, s := b.slot(gpu.CPU, 200<<20), b.slot(gpu.CPU, 200<<20)
	stop := make(chan struct{})
	var beside sync.WaitGroup
	beside.Go(func() {
		for range 1000 {
			got, err := run(neighbour, b.task("hold"), same(block{MB: 40, For: 0.02}, 5)...)
			if err != nil || len(got) != 5 || string(got[4].Value) != "40" {
				t.Errorf("the neighbour: %v, %v", got, err)
				return
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	mark := filepath.Join(b.dir, "mark")
	for range 3 {
		got, err := run(s, b.task("hold"), block{MB: 10}, block{MB: 20}, block{MB: 400, For: 30, Mark: mark}, block{MB: 10})
		ended := time.Now()
		f := asFault(t, err)
		require.Equal(t, gpumux.Budget, f.Kind)
		require.Equal(t, "run", f.Op)
		require.EqualValues(t, 200<<20, f.Budget)
		require.Greater(t, f.Peak, int64(200<<20))
		require.Less(t, f.Peak, int64(450<<20))
		require.Contains(t, f.Error(), "over the slot's budget of 200MiB")
		require.Contains(t, f.Hint, "give the pool memory: ")
		require.Len(t, got, 2, "what had finished stays")
		stamp, err := os.ReadFile(mark)
		if errors.Is(err, fs.ErrNotExist) {
			continue // ended while it still allocated
		}
		require.NoError(t, err)
		require.NoError(t, os.Remove(mark))
		seconds, err := strconv.ParseFloat(string(stamp), 64)
		require.NoError(t, err)
		t.Logf("ended %s after the memory was there", ended.Sub(time.UnixMicro(int64(seconds*1e6))).Round(time.Millisecond))
	}
	got, err := run(s, b.task("hold"), block{MB: 100, For: 0.3})
	require.NoError(t, err, "the next process is watched from zero")
	require.Equal(t, "100", string(got[0].Value))
	close(stop)
	beside.Wait()
}

// A forked process is followed like any other, and what it shares with its template is not the next one's burden.
// The peak of an item that has just ended may be asked for when the next one takes its memory, which keeps nobody from seeing that.
func TestWatch_EndsWhatTakesItsMemoryInOneCall(t *testing.T) {
	b := newWorkbench(t, nil, false)
	s := b.slot(gpu.CPU, 200<<20)
	const all = 6000
	ended := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
			b.mu.Lock()
			followed := slices.Collect(maps.Keys(b.processes))
			b.mu.Unlock()
			for _, f := range followed {
				f.Peak()
			}
		}
	})
	_, err := run(s, b.task("fill"), all)
	close(ended)
	asking.Wait()
	f := asFault(t, err)
	require.Equal(t, gpumux.Budget, f.Kind)
	require.Less(t, f.Peak, int64(all)<<20, "it was ended in the middle")
}

func TestWatch_EndsAForkedProcess(t *testing.T) {
	b := newWorkbench(t, nil, false)
	s := b.slot(gpu.CPU, 200<<20)
	task := b.task("hold")
	task.Mode = gpumux.Fresh
	for range 2 {
		got, err := run(s, task, block{MB: 40, For: 0.3}, block{MB: 400, For: 30}, block{MB: 10})
		f := asFault(t, err)
		require.Equal(t, gpumux.Budget, f.Kind)
		require.Equal(t, "run", f.Op)
		require.Len(t, got, 1)
		require.Greater(t, got[0].Peak, int64(40<<20))
		require.Less(t, got[0].Peak, int64(120<<20))
	}
	require.Len(t, b.log.FilterMessageSnippet("template ready").All(), 1)
}

func TestWatch_CountsDescendants(t *testing.T) {
	b := newWorkbench(t, nil, false)
	s := b.slot(gpu.CPU, 150<<20)
	_, err := run(s, b.task("child"), 400)
	f := asFault(t, err)
	require.Equal(t, gpumux.Budget, f.Kind)
	require.Greater(t, f.Peak, int64(150<<20))
}

func TestWatch_SharedPagesCountOnce(t *testing.T) {
	b := newWorkbench(t, nil, false)
	s := b.slot(gpu.CPU, 250<<20)
	got, err := run(s, b.task("forks"), 120, 120)
	require.NoError(t, err, "five processes share 120 MiB")
	require.Len(t, got, 2)
}

// A look at shared pages waits for a process that takes memory, while nobody waits for the look.
func TestWatch_NobodyWaitsForALookAtSharedPages(t *testing.T) {
	t.Parallel()
	const budget, whole = 64 << 10, 1 << 30
	for name, test := range map[string]struct {
		own       uint64
		meanwhile func(f *watched)
		ended     bool
	}{
		"over its budget":                  {own: whole, ended: true},
		"over it with what is not its own": {own: budget},
		"let go meanwhile":                 {own: whole, meanwhile: func(f *watched) { f.Close() }},
		"it has given memory back":         {own: whole, meanwhile: func(f *watched) { f.w.mu.Lock(); f.counted = budget; f.w.mu.Unlock() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command("sleep", "600")
			require.NoError(t, cmd.Start())
			t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
			w := newWatch(nil, false, zap.NewNop())
			looks, holds := make(chan []int, 10), make(chan struct{})
			w.proportional = func(pids ...int) uint64 { looks <- pids; <-holds; return test.own }
			over := make(chan int64, 1)
			f := w.Follow(gpu.CPU, cmd.Process.Pid, budget, func(o session.Over) { over <- o.Held }).(*watched)
			neighbour := w.Follow(gpu.CPU, os.Getpid(), 0, func(session.Over) {})
			// A program that has just begun holds little.
			require.Eventually(t, func() bool { w.round(); return len(looks) > 0 }, time.Minute, time.Millisecond)
			require.Equal(t, []int{cmd.Process.Pid}, <-looks)
			for range 3 {
				w.round()
				neighbour.Busy(true)
				require.Positive(t, neighbour.Held())
				require.Positive(t, neighbour.Measure())
				require.Positive(t, neighbour.Peak())
			}
			require.Empty(t, looks, "one look at a time")
			require.Empty(t, over)
			neighbour.Close()
			if test.meanwhile != nil {
				test.meanwhile(f)
			}
			close(holds)
			require.Eventually(t, func() bool { w.mu.Lock(); defer w.mu.Unlock(); return !f.sampling }, time.Minute, time.Millisecond)
			require.Equal(t, test.ended, len(over) == 1)
		})
	}
}

func TestWatch_LooksAgainSoonerAtWhatGrows(t *testing.T) {
	at := time.Now()
	last := sharedSample{at: at, took: time.Second, held: 30 << 20}
	const budget = 24 << 20
	for _, c := range []struct {
		after time.Duration
		held  int64
		due   bool
	}{
		{after: 9 * time.Second, held: 90 << 20},
		{after: 10 * time.Second, held: 33 << 20, due: true},
		{after: 10 * time.Second, held: 32 << 20},
		{after: 49 * time.Second, held: 20 << 20},
		{after: 50 * time.Second, held: 30 << 20, due: true},
	} {
		require.Equal(t, c.due, last.due(at.Add(c.after), c.held, budget), c)
	}
	require.True(t, sharedSample{}.due(at, 25<<20, budget), "the first")
}

func TestWatch_EndsACommandToo(t *testing.T) {
	b := newWorkbench(t, nil, false)
	s := b.slot(gpu.CPU, 150<<20)
	const script = `
import os, sys, time
n = int(input())
x = b"x" * (n << 20)
while n <= 150 and not os.path.exists(sys.argv[1]): time.sleep(0.01)
time.sleep(30 if n > 150 else 0)
print(n)`
	task := launch.Task{Name: "command", Command: []string{"python3", "-c", script, b.sees(100 << 20)}}
	got, err := run(s, task, 100, 300)
	f := asFault(t, err)
	require.Equal(t, gpumux.Budget, f.Kind)
	require.EqualValues(t, 150<<20, f.Budget)
	require.Len(t, got, 1)
	require.InDelta(t, 110<<20, got[0].Peak, 15<<20)
	require.EqualValues(t, 150<<20, got[0].Budget)
}

func TestWatch_TellsThePeakOfEachItem(t *testing.T) {
	b := newWorkbench(t, nil, false)
	s := b.slot(gpu.CPU, 0)
	// Each block is gone again before a round can see it; smaller ones the C library would keep.
	sizes := []int{100, 40, 200, 40, 60}
	var items []any
	for _, mb := range sizes {
		items = append(items, block{MB: mb, For: 0.01})
	}
	got, err := run(s, b.task("hold"), items...)
	require.NoError(t, err)
	for i, mb := range sizes {
		rise := got[i].Peak - got[1].Peak
		require.InDelta(t, int64(mb-40)<<20, rise, 6<<20, "item %d: %s", i, gpumux.Size(got[i].Peak))
	}
	require.InDelta(t, 55<<20, got[1].Peak, 15<<20, "with the interpreter's own")
	require.Zero(t, got[0].Budget)
	quick, err := run(s, b.task("hold"), same(block{}, 5000)...)
	require.NoError(t, err)
	measured := 0
	for _, d := range quick {
		if d.Peak > 0 {
			measured++
		}
	}
	require.Positive(t, measured)
	require.Less(t, measured, 500, "quick items are not each worth a measurement")
}

func TestHygiene_ALeakIsRecycledBeforeItPassesTheBudget(t *testing.T) {
	b := newWorkbench(t, nil, false)
	s := b.slot(gpu.CPU, 200<<20)
	got, err := run(s, b.task("leak"), same(5, 150)...)
	require.NoError(t, err, "no item pays for it")
	require.Len(t, got, 150)
	stats := s.Stats()
	require.Positive(t, stats.Recycled["leak"], "%v", stats)
	require.GreaterOrEqual(t, stats.Recycled["leak"], stats.Processes-1)
	require.EqualValues(t, 150, stats.Items)
	require.Less(t, stats.Processes, int64(15), "a process is used for most of its budget")
	line := b.log.FilterMessage("task process recycled").All()[0].ContextMap()
	require.Equal(t, "leak", line["reason"])
	require.Regexp(t, `of 200MiB are held between items, (4\.9|5|5\.1)MiB more with each`, line["why"])
}

func TestHygiene_TrimsGiveGarbageBackWhileItemsRun(t *testing.T) {
	b := newWorkbench(t, nil, false)
	s := b.slot(gpu.CPU, 200<<20)
	got, err := run(s, b.task("litter"), same(4, 200)...)
	require.NoError(t, err)
	pids := map[string]bool{}
	for _, d := range got {
		pids[string(d.Value)] = true
	}
	stats := s.Stats()
	t.Logf("%+v", stats)
	require.Positive(t, stats.Trims)
	require.Greater(t, stats.Freed, int64(200<<20))
	require.Len(t, pids, 1, "one process does it all")
}

func TestHygiene_TrimsWhenNobodyWaits(t *testing.T) {
	b := newWorkbench(t, nil, false)
	s := b.slot(gpu.CPU, 200<<20)
	_, err := run(s, b.task("litter"), 110)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.Stats().Trims == 1 }, time.Minute, 10*time.Millisecond)
	require.Greater(t, s.Stats().Freed, int64(100<<20))
	require.Equal(t, slot.Ready, s.State())
	got, err := run(s, b.task("litter"), 110)
	require.NoError(t, err)
	require.Len(t, got, 1)
}

func TestWatch_DeviceMemory(t *testing.T) {
	const uuid = "GPU-00000000-0000-0000-0000-000000000000"
	machine := gputest.New(t, gputest.State{GPUs: []gputest.GPU{{Total: 80 << 30, Free: 80 << 30}}})
	inventory, err := gpu.Open(gpu.Options{Library: machine.Library})
	require.NoError(t, err)
	defer inventory.Close()
	t.Run("over its budget", func(t *testing.T) {
		b := newWorkbench(t, inventory, true)
		b.env["DRIVER"], b.env["UUID"] = machine.File+".d", uuid
		s := b.slot(uuid, 8<<30)
		got, err := run(s, b.task("vram"), block{MB: 6000, Until: b.sees(6000 << 20)}, block{MB: 7000, Until: b.sees(7000 << 20)},
			block{MB: 9000, For: 30})
		f := asFault(t, err)
		require.Equal(t, gpumux.Budget, f.Kind)
		require.EqualValues(t, 9000<<20, f.Peak)
		require.Equal(t, uuid, f.Device)
		require.Len(t, got, 2)
		require.EqualValues(t, 6000<<20, got[0].Peak)
		require.EqualValues(t, 7000<<20, got[1].Peak)
	})
	t.Run("with process numbers of its own", func(t *testing.T) {
		b := newWorkbench(t, inventory, false)
		b.env["DRIVER"], b.env["UUID"] = machine.File+".d", uuid
		s := b.slot(uuid, 8<<30)
		got, err := run(s, b.task("vram"), block{MB: 9000, For: 0.6})
		require.NoError(t, err, "nothing is ended on numbers that mean other processes")
		require.Zero(t, got[0].Peak)
	})
	t.Run("with a driver that does not tell", func(t *testing.T) {
		b := newWorkbench(t, silent{}, true)
		b.env["DRIVER"], b.env["UUID"] = machine.File+".d", uuid
		s := b.slot(uuid, 8<<30)
		_, err := run(s, b.task("vram"), block{MB: 9000, For: 0.6})
		require.NoError(t, err)
		require.Equal(t, 1, b.log.FilterMessageSnippet("does not tell").Len(), "said once")
	})
}

// drivers says what each process holds on a device, or hangs until the device's channel is closed.
type drivers struct {
	hangs map[string]chan struct{}
	mu    sync.Mutex
	asked map[string]int
	held  map[int]uint64
	err   error
}

func (d *drivers) ProcessMemory(uuid string) (map[int]uint64, error) {
	d.mu.Lock()
	d.asked[uuid]++
	held, err := maps.Clone(d.held), d.err
	d.mu.Unlock()
	if hangs := d.hangs[uuid]; hangs != nil {
		<-hangs
	}
	return held, err
}

func TestWatch_ADriverThatHangsKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "600")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	pid, hangs := cmd.Process.Pid, make(chan struct{})
	devices := &drivers{hangs: map[string]chan struct{}{"GPU-1": hangs}, asked: map[string]int{}, held: map[int]uint64{pid: 9 << 30}}
	w := newWatch(devices, true, zap.NewNop())
	ended := make(chan string, 3)
	follow := func(device string, budget gpumux.Size) *watched {
		return w.Follow(device, pid, budget, func(session.Over) { ended <- device }).(*watched)
	}
	follow("GPU-1", 8<<30)
	w.round() // hangs
	follow(gpu.CPU, 64<<10)
	follow("GPU-2", 8<<30)
	require.Eventually(t, func() bool { w.round(); return len(ended) == 2 }, time.Minute, time.Millisecond)
	require.ElementsMatch(t, []string{gpu.CPU, "GPU-2"}, []string{<-ended, <-ended})
	devices.mu.Lock()
	require.Equal(t, 1, devices.asked["GPU-1"], "no second call is made while one hangs")
	devices.mu.Unlock()
	close(hangs)
	require.Equal(t, "GPU-1", <-ended)
	w.readers.Wait()
}

func TestWatch_MeasuresAnewOrGivesTheLastReading(t *testing.T) {
	t.Parallel()
	core, seen := observer.New(zap.DebugLevel)
	devices := &drivers{asked: map[string]int{}, held: map[int]uint64{os.Getpid(): 1 << 30}}
	w := newWatch(devices, true, zap.New(core))
	f := w.Follow("GPU-1,GPU-2", os.Getpid(), 0, func(session.Over) {})
	w.round()
	w.readers.Wait()
	require.EqualValues(t, 2<<30, f.Held())
	devices.held = map[int]uint64{os.Getpid(): 2 << 30}
	require.EqualValues(t, 4<<30, f.Measure())
	devices.err, devices.held = fmt.Errorf("gpu: processes: %w", gpu.ErrSilent), nil
	for range 3 {
		require.EqualValues(t, 4<<30, f.Measure())
	}
	require.Equal(t, 2, seen.FilterMessageSnippet("does not answer").Len(), "said once of each")
	devices.err = gpu.ErrLost
	require.Zero(t, f.Measure())
	require.Equal(t, 2, seen.Len(), "the guard speaks of lost devices")
}

type silent struct{}

func (silent) ProcessMemory(string) (map[int]uint64, error) { return nil, errors.ErrUnsupported }

// The cost of the watch over eight busy slots, with the host's other processes there are.
func BenchmarkWatch_EightSlots(b *testing.B) {
	w := newWatch(nil, false, zap.NewNop())
	for range 8 {
		// Two processes each, as a task with a helper has.
		cmd := exec.Command("sh", "-c", "sleep 600 & wait")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		require.NoError(b, cmd.Start())
		b.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); _ = cmd.Wait() })
		w.Follow(gpu.CPU, cmd.Process.Pid, 8<<30, func(session.Over) {}).Busy(true)
	}
	var before, after syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &before))
	rounds := 0
	for b.Loop() {
		w.round()
		rounds++
	}
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &after))
	spent := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	b.ReportMetric(100*float64(spent)/float64(rounds)/float64(watchNear), "%core@100ms")
}

// The cost of the peak of one item.

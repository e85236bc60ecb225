package memory

import (
	"errors"
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

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/process"
	"github.com/gpumux/gpumux/internal/session"
)

func TestWatch_EndsWhatPassesItsBudget(t *testing.T) {
	b := newWorkbench(t, nil)
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
		require.Equal(t, gpumux.FaultBudget, f.Kind)
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

// The slot may ask for the peak of the last item while the next one takes its memory. The
// watch must still see that.
func TestWatch_EndsWhatTakesItsMemoryInOneCall(t *testing.T) {
	b := newWorkbench(t, nil)
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
	require.Equal(t, gpumux.FaultBudget, f.Kind)
	require.Less(t, f.Peak, int64(all)<<20, "it was ended in the middle")
}

// The watch follows a forked process like any other. Pages shared with the template do
// not count for the next process.
func TestWatch_EndsAForkedProcess(t *testing.T) {
	process.Dedicate()
	b := newWorkbench(t, nil)
	s := b.slot(gpu.CPU, 200<<20)
	task := b.task("hold")
	task.Mode = gpumux.ModeFresh
	for range 2 {
		got, err := run(s, task, block{MB: 40, For: 0.3}, block{MB: 400, For: 30}, block{MB: 10})
		f := asFault(t, err)
		require.Equal(t, gpumux.FaultBudget, f.Kind)
		require.Equal(t, "run", f.Op)
		require.Len(t, got, 1)
		require.Greater(t, got[0].Peak, int64(40<<20))
		require.Less(t, got[0].Peak, int64(120<<20))
	}
	require.Len(t, b.log.FilterMessageSnippet("template ready").All(), 1)
}

func TestWatch_CountsDescendants(t *testing.T) {
	b := newWorkbench(t, nil)
	s := b.slot(gpu.CPU, 150<<20)
	_, err := run(s, b.task("child"), 400)
	f := asFault(t, err)
	require.Equal(t, gpumux.FaultBudget, f.Kind)
	require.Greater(t, f.Peak, int64(150<<20))
}

func TestWatch_SharedPagesCountOnce(t *testing.T) {
	b := newWorkbench(t, nil)
	s := b.slot(gpu.CPU, 250<<20)
	got, err := run(s, b.task("forks"), 120, 120)
	require.NoError(t, err, "five processes share 120 MiB")
	require.Len(t, got, 2)
}

// A look at shared pages may wait for a process that takes memory. Nobody else waits for
// the look.
func TestWatch_NobodyWaitsForALookAtSharedPages(t *testing.T) {
	t.Parallel()
	const budget, whole = 64 << 10, 1 << 30
	for name, test := range map[string]struct {
		resident  uint64
		meanwhile func(f *watched)
		ended     bool
	}{
		"over its budget":                  {resident: whole, ended: true},
		"over it with what is not its own": {resident: budget},
		"let go meanwhile":                 {resident: whole, meanwhile: func(f *watched) { f.Close() }},
		"it has given memory back":         {resident: whole, meanwhile: func(f *watched) { f.w.mu.Lock(); f.counted = budget; f.w.mu.Unlock() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pid := sleeper(t)
			w := newWatch(nil, zap.NewNop())
			looks, holds := make(chan []int, 10), make(chan struct{})
			w.proportional = func(pids ...int) uint64 { looks <- pids; <-holds; return test.resident }
			over := make(chan int64, 1)
			f := w.Follow(gpu.CPU, pid, budget, func(o session.Over) { over <- o.Held }).(*watched)
			neighbour := w.Follow(gpu.CPU, os.Getpid(), 0, func(session.Over) {})
			// A program that has just begun holds too little for a look.
			require.Eventually(t, func() bool { w.round(); return len(looks) > 0 }, time.Minute, time.Millisecond)
			require.Equal(t, []int{pid}, <-looks)
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

func TestWatch_EndsACommandToo(t *testing.T) {
	b := newWorkbench(t, nil)
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
	require.Equal(t, gpumux.FaultBudget, f.Kind)
	require.EqualValues(t, 150<<20, f.Budget)
	require.Len(t, got, 1)
	require.InDelta(t, 110<<20, got[0].Peak, 15<<20)
	require.EqualValues(t, 150<<20, got[0].Budget)
}

func TestWatch_TellsThePeakOfEachItem(t *testing.T) {
	b := newWorkbench(t, nil)
	s := b.slot(gpu.CPU, 0)
	// Each block is gone again before a round can see it. The C library would keep smaller
	// blocks.
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

// The cost includes reading the host's other processes.
func BenchmarkWatch_EightSlots(b *testing.B) {
	w := newWatch(nil, zap.NewNop())
	for range 8 {
		// Each slot has two processes, like a task with a helper.
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

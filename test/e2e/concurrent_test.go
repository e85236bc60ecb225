package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/workers/config"
	"github.com/gpumux/gpumux/workflows"
)

const concurrentPy = `
import asyncio, os, signal
import gpumux

running = 0
full = asyncio.Event()

@gpumux.concurrent(max=64)
async def all_60(x):
    # all wait for the last one
    global running
    with open(os.environ["CALLS"], "a") as f: f.write(f"{x}\n")
    running += 1
    if running == 60: full.set()
    await asyncio.wait_for(full.wait(), 60)
    running -= 1
    if running == 0: full.clear() # for the next map

@gpumux.batch(max=64)
def batch(xs):
    return [len(xs)] * len(xs)

@gpumux.concurrent(max=8)
async def gate(x):
    # items of 100 and more wait for a file
    while x >= 100 and not os.path.exists(os.path.join(os.environ["MARKERS"], "open")): await asyncio.sleep(0.01)
    with open(os.environ["CALLS"], "a") as f: f.write(f"{x}\n")
    return x

@gpumux.concurrent(max=16)
async def culprit(x):
    with open(os.environ["CALLS"], "a") as f: f.write(f"{x}\n")
    await asyncio.sleep(0)
    if x == 61:
        with open(os.path.join(os.environ["MARKERS"], "deaths"), "a") as f: f.write("x")
        os.kill(os.getpid(), signal.SIGKILL)
    return x

@gpumux.concurrent(max=16)
async def silent(x):
    with open(os.environ["CALLS"], "a") as f: f.write(f"{x}\n")
    await asyncio.sleep(1000 if x % 50 == 30 else 0.01)
    return x
`

// TestConcurrent_ItemsOfASlot has maps whose items run at the same time in one slot, one
// after the other.
func TestConcurrent_ItemsOfASlot(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "concurrent_.py"), []byte(concurrentPy), 0o644))
	c := s.config("cpu", 1)
	for _, function := range []string{"all_60", "batch", "gate", "culprit", "silent"} {
		c.Tasks[function] = config.Task{Python: "concurrent_.py:" + function, Env: map[string]string{
			"CALLS": s.calls, "MARKERS": filepath.Join(s.dir, "markers"),
		}}
	}
	silent := c.Tasks["silent"]
	silent.Timeout = gpumux.Duration(2 * time.Second)
	c.Tasks["silent"] = silent
	s.serve(c)
	s.each(map[string]func(*site){
		"TheWindowIsFullOverChunks": fullWindow, "MicroBatchesAreFullFromTheFirst": fullBatches, "MapsShareASlot": sharedSlot,
		"TheCulpritIsFound": culprit, "LateItemsEndAlone": lateItems,
	})
}

// over runs a map of n items of a task on the only slot.
func (s *site) over(task string, n int64, chunk int) gpumux.Summary {
	s.t.Helper()
	sum, err := s.run(gpumux.MapInput{Task: task, Range: &gpumux.Range{End: n}, Ladder: []string{"cpu"}, Chunk: chunk})
	require.NoError(s.t, err)
	return sum
}

// succeeded counts the items that have their own number as value.
func (s *site) succeeded(sum gpumux.Summary) (n int) {
	s.t.Helper()
	for i, r := range s.results(sum) {
		if r.Fault == nil {
			require.Equal(s.t, strconv.Itoa(i), string(r.Value))
			n++
		}
	}
	return n
}

// All 60 items wait for each other, so the map ends only if nobody has to wait for the
// end of a chunk, whatever their size.
func fullWindow(s *site) {
	for _, chunk := range []int{0, 7} {
		s.forget()
		require.Zero(s.t, s.over("all_60", 60, chunk).Failed)
		s.calledOnce(60)
	}
	service(s.t, s.client, map[string]any{"all60": func(ctx workflow.Context, items []int) error { // which has no store
		mapped, err := workflows.Map[int, int](ctx, gpumux.MapInput{Task: "all_60", Ladder: []string{"cpu"}}, items)
		if err == nil {
			_, err = mapped.Values()
		}
		return err
	}})
	s.forget()
	items := make([]int, 60)
	for i := range items {
		items[i] = i
	}
	run, err := s.client.ExecuteWorkflow(s.t.Context(), client.StartWorkflowOptions{ID: "all60", TaskQueue: "service"}, "all60", items)
	require.NoError(s.t, err)
	require.NoError(s.t, run.Get(s.t.Context(), nil))
	s.calledOnce(60)
}

// No micro-batch is smaller than it may be, from the first on.
func fullBatches(s *site) {
	for i, r := range s.results(s.over("batch", 640, 0)) {
		require.Equal(s.t, "64", string(r.Value), "item %d", i)
	}
}

// Maps of the same task share a slot whose process has room. One of another task waits
// until they have left it, and is not passed over for ever.
func sharedSlot(s *site) {
	begin := func(id, task string, from, to int64, chunk int) client.WorkflowRun {
		run, err := s.client.ExecuteWorkflow(s.t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: gpumux.Queue}, gpumux.MapWorkflow,
			gpumux.MapInput{Task: task, Range: &gpumux.Range{Start: from, End: to}, Ladder: []string{"cpu"}, Chunk: chunk})
		require.NoError(s.t, err)
		return run
	}
	waiting := begin("waiting", "gate", 97, 103, 6)
	h, err := s.starter().Open(s.t.Context(), "waiting")
	require.NoError(s.t, err)
	rig.Wait(s.t, func() bool {
		retries, err := h.Retries(s.t.Context(), 1)
		return err == nil && retries.Finished == 3
	}, time.Minute, 100*time.Millisecond)
	require.Zero(s.t, s.progress(waiting).Succeeded, "which counts chunks")
	require.NoError(s.t, begin("quick", "gate", 0, 4, 0).Get(s.t.Context(), nil), "beside the one that waits")
	other := begin("other", "double", 0, 3, 0)
	rig.Wait(s.t, func() bool { return s.progress(other).InFlight > 0 }, time.Minute, 10*time.Millisecond)
	late := begin("late", "gate", 4, 8, 0)
	require.Zero(s.t, s.progress(other).Succeeded)
	require.NoError(s.t, os.WriteFile(filepath.Join(s.dir, "markers", "open"), nil, 0o644))
	for _, run := range []client.WorkflowRun{waiting, other, late} {
		require.NoError(s.t, run.Get(s.t.Context(), nil))
	}
	s.calledOnce(14)
}

// An item that ends its process is found among those under way, and no other fails.
func culprit(s *site) {
	sum := s.over("culprit", 200, 100)
	require.Equal(s.t, map[gpumux.FaultKind]int64{gpumux.FaultCrash: 1}, sum.Faults)
	require.Equal(s.t, 199, s.succeeded(sum))
	f := s.results(sum)[61].Fault
	require.NotNil(s.t, f)
	require.True(s.t, f.Alone)
	deaths, err := os.ReadFile(filepath.Join(s.dir, "markers", "deaths"))
	require.NoError(s.t, err)
	require.LessOrEqual(s.t, len(deaths), 2+4+3, "twice among 16, by halves, after others, and alone twice")
}

// Items that hang cost no other item a second call, and no process.
func lateItems(s *site) {
	s.forget()
	sum := s.over("silent", 200, 0)
	require.Equal(s.t, map[gpumux.FaultKind]int64{gpumux.FaultTimeout: 4}, sum.Faults)
	require.Equal(s.t, 196, s.succeeded(sum))
	s.calledOnce(200)
	f := s.results(sum)[80].Fault
	require.Equal(s.t, "no result after 2s", f.Message)
	require.Contains(s.t, f.Traceback, "in silent")
	require.NotEmpty(s.t, f.Hint)
}

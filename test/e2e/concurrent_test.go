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

running = most = 0
full = asyncio.Event()

async def among(x, wanted):
    # with so many others at the same time, once; they all wait for the last one
    global running, most
    with open(os.environ["CALLS"], "a") as f: f.write(f"{x}\n")
    running += 1
    most = max(most, running)
    if running == wanted: full.set()
    await asyncio.wait_for(full.wait(), 60)
    running -= 1
    return most

@gpumux.concurrent(max=8)
async def window(x):
    return await among(x, 8)

@gpumux.concurrent(max=64)
async def all_60(x):
    await among(x, 60)
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

def dies(name):
    with open(os.path.join(os.environ["MARKERS"], name), "a") as f: f.write("x")
    os.kill(os.getpid(), signal.SIGKILL)

@gpumux.concurrent(max=16)
async def culprit(x):
    with open(os.environ["CALLS"], "a") as f: f.write(f"{x}\n")
    await asyncio.sleep(0)
    if x == 61: dies("deaths")
    return x

@gpumux.concurrent(max=8)
async def engine(x):
    if x == 30 and not os.path.exists(os.path.join(os.environ["MARKERS"], "engine")): dies("engine")
    with open(os.environ["CALLS"], "a") as f: f.write(f"{x}\n")
    await asyncio.sleep(0)
    return x

@gpumux.concurrent(max=4)
async def hangs(x):
    if x == 5: await asyncio.Event().wait()
    return x
`

// TestConcurrent_ItemsOfASlot has maps whose items run at the same time in one slot, one
// after the other.
func TestConcurrent_ItemsOfASlot(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "concurrent_.py"), []byte(concurrentPy), 0o644))
	c := s.config("cpu", 1)
	for _, function := range []string{"window", "all_60", "batch", "gate", "culprit", "engine", "hangs"} {
		c.Tasks[function] = config.Task{Python: "concurrent_.py:" + function, Env: map[string]string{
			"CALLS": s.calls, "MARKERS": filepath.Join(s.dir, "markers"),
		}}
	}
	s.serve(c)
	s.each(map[string]func(*site){
		"Overlap": overlap, "TheWindowIsFullOverChunks": fullWindow, "MicroBatchesAreFullFromTheFirst": fullBatches, "MapsShareASlot": sharedSlot,
		"TheCulpritIsFound": culprit, "ADeathCostsOneRetry": death, "ATimeoutIsOneItems": hang,
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

// Eight items wait for each other, so the map ends only if eight run at the same time.
func overlap(s *site) {
	sum := s.over("window", 100, 100)
	require.Zero(s.t, sum.Failed)
	for i, r := range s.results(sum) {
		require.Equal(s.t, "8", string(r.Value), "item %d: the most at the same time", i)
	}
	s.calledOnce(100)
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
	begin := func(id, task string, from, to int64) client.WorkflowRun {
		run, err := s.client.ExecuteWorkflow(s.t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: gpumux.Queue}, gpumux.MapWorkflow,
			gpumux.MapInput{Task: task, Range: &gpumux.Range{Start: from, End: to}, Ladder: []string{"cpu"}})
		require.NoError(s.t, err)
		return run
	}
	waiting := begin("waiting", "gate", 100, 103)
	require.NoError(s.t, begin("quick", "gate", 0, 4).Get(s.t.Context(), nil), "beside the one that waits")
	other := begin("other", "double", 0, 3)
	rig.Wait(s.t, func() bool { return s.progress(other).InFlight > 0 }, time.Minute, 10*time.Millisecond)
	late := begin("late", "gate", 4, 8)
	require.Zero(s.t, s.progress(other).Succeeded)
	require.NoError(s.t, os.WriteFile(filepath.Join(s.dir, "markers", "open"), nil, 0o644))
	for _, run := range []client.WorkflowRun{waiting, other, late} {
		require.NoError(s.t, run.Get(s.t.Context(), nil))
	}
	s.calledOnce(11)
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

// A process that dies of itself costs the items under way one retry each.
func death(s *site) {
	sum := s.over("engine", 100, 100)
	require.Zero(s.t, sum.Failed)
	require.Equal(s.t, 100, s.succeeded(sum))
	twice := 0
	for item, times := range s.seen() {
		require.LessOrEqual(s.t, times, 2, "item %s", item)
		twice += times - 1
	}
	require.Less(s.t, twice, 16, "those that had begun and were not answered")
}

// A hang is one item's: the others run again and succeed.
func hang(s *site) {
	sum, err := s.run(gpumux.MapInput{Task: "hangs", Range: &gpumux.Range{End: 40}, Ladder: []string{"cpu"}, Chunk: 40,
		Timeout: gpumux.Duration(2 * time.Second)})
	require.NoError(s.t, err)
	require.Equal(s.t, map[gpumux.FaultKind]int64{gpumux.FaultTimeout: 1}, sum.Faults)
	require.Equal(s.t, 39, s.succeeded(sum))
	require.Equal(s.t, gpumux.FaultTimeout, s.results(sum)[5].Fault.Kind)
}

// The first item waits, and the results of all others are stored. A kill repeats that
// one.
func TestConcurrent_AKillRepeatsWhatWasInFlight(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.write("first.py", `
import asyncio, gpumux, os
@gpumux.concurrent(max=64)
async def first(x):
    while x == 0 and not os.path.exists("open"): await asyncio.sleep(0.01)
    with open("calls", "a") as f: f.write(f"{x}\n")
    return x
`)
	args := []string{"map", "first.py:first", "--range", "0:200", "--local", "--slots", "1", "--out", "r.jsonl"}
	p := s.begin(args...)
	rig.Wait(t, func() bool { return storedItems(t, s.path("state/gpumux/local/*/store")) == 199 }, time.Minute, 20*time.Millisecond, "all but one")
	require.NoError(t, p.Process.Kill())
	require.Equal(t, -1, p.code())
	s.write("open", "")
	s.run(0, args...)
	require.Len(t, s.lines(s.file("r.jsonl")), 200)
	for item, times := range s.calls() {
		require.Equal(t, 1, times, "item %s", item)
	}
}

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
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
    return await among(x, 60)

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

// concurrent is a site whose worker has one slot and a function of concurrentPy.
func concurrent(t *testing.T, function string) *site {
	t.Helper()
	t.Parallel()
	s := newSite(t)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "concurrent_.py"), []byte(concurrentPy), 0o644))
	c := s.config("cpu", 1)
	require.NoError(t, os.MkdirAll(filepath.Join(s.dir, "markers"), 0o755))
	c.Tasks[function] = config.Task{Python: "concurrent_.py:" + function, Env: map[string]string{
		"CALLS": s.calls, "MARKERS": filepath.Join(s.dir, "markers"),
	}}
	s.serve(c)
	return s
}

// succeeded are those of n items that have a value, with whether it is their own number.
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
func TestConcurrent_ItemsOverlap(t *testing.T) {
	s := concurrent(t, "window")
	sum, err := s.run(gpumux.MapInput{Task: "window", Range: &gpumux.Range{End: 100}, Ladder: []string{"cpu"}, Chunk: 100})
	require.NoError(t, err)
	require.Zero(t, sum.Failed)
	for i, r := range s.results(sum) {
		require.Equal(t, "8", string(r.Value), "item %d: the most at the same time", i)
	}
	s.calledOnce(100)
}

// All 60 items wait for each other, so the map ends only if nobody has to wait for the
// end of a chunk, whatever their size.
func TestConcurrent_TheWindowIsFullOverChunks(t *testing.T) {
	for name, in := range map[string]gpumux.MapInput{
		"of gpumux's own size": {}, "of 7": {Chunk: 7}, "of 1": {Chunk: 1}, "of 7, inline": {Chunk: 7, Window: 9},
	} {
		t.Run(name, func(t *testing.T) {
			s := concurrent(t, "all_60")
			in.Task, in.Range, in.Ladder = "all_60", &gpumux.Range{End: 60}, []string{"cpu"}
			sum, err := s.run(in)
			require.NoError(t, err)
			require.Zero(t, sum.Failed)
			s.calledOnce(60)
		})
	}
}

// all60 is somebody's own workflow, which has no store.
func all60(ctx workflow.Context) ([]int, error) {
	items := make([]int, 60)
	for i := range items {
		items[i] = i
	}
	mapped, err := workflows.Map[int, int](ctx, gpumux.MapInput{Task: "all_60", Ladder: []string{"cpu"}}, items)
	if err != nil {
		return nil, err
	}
	return mapped.Values()
}

func TestConcurrent_TheWindowIsFullInAnyWorkflow(t *testing.T) {
	s := concurrent(t, "all_60")
	w := worker.New(s.client, "service", worker.Options{})
	w.RegisterWorkflowWithOptions(all60, workflow.RegisterOptions{Name: "all60"})
	require.NoError(t, w.Start())
	defer w.Stop()
	run, err := s.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "all60", TaskQueue: "service"}, "all60")
	require.NoError(t, err)
	require.NoError(t, run.Get(t.Context(), nil))
	s.calledOnce(60)
}

// No micro-batch is smaller than it may be, from the first on.
func TestConcurrent_MicroBatchesAreFullFromTheFirst(t *testing.T) {
	s := concurrent(t, "batch")
	sum, err := s.run(gpumux.MapInput{Task: "batch", Range: &gpumux.Range{End: 640}, Ladder: []string{"cpu"}})
	require.NoError(t, err)
	for i, r := range s.results(sum) {
		require.Equal(t, "64", string(r.Value), "item %d", i)
	}
}

// Maps of the same task share a slot whose process has room. One of another task waits
// until they have left it, and is not passed over for ever.
func TestConcurrent_MapsShareASlot(t *testing.T) {
	s := concurrent(t, "gate")
	input := func(id string, from, to int64) client.WorkflowRun {
		run, err := s.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: gpumux.Queue}, gpumux.MapWorkflow,
			gpumux.MapInput{Task: "gate", Range: &gpumux.Range{Start: from, End: to}, Ladder: []string{"cpu"}})
		require.NoError(t, err)
		return run
	}
	waiting := input("waiting", 100, 103)
	require.NoError(t, input("quick", 0, 4).Get(t.Context(), nil), "beside the one that waits")
	other, err := s.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "other", TaskQueue: gpumux.Queue}, gpumux.MapWorkflow,
		gpumux.MapInput{Task: "double", Range: &gpumux.Range{End: 3}, Ladder: []string{"cpu"}})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	require.Error(t, other.Get(ctx, nil))
	late := input("late", 4, 8)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "markers", "open"), nil, 0o644))
	for _, run := range []client.WorkflowRun{waiting, other, late} {
		require.NoError(t, run.Get(t.Context(), nil))
	}
	for item, times := range s.seen() {
		require.Equal(t, 1, times, "item %s", item)
	}
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

// An item that ends its process is found among those under way, and no other fails.
func TestConcurrent_TheCulpritIsFound(t *testing.T) {
	s := concurrent(t, "culprit")
	sum, err := s.run(gpumux.MapInput{Task: "culprit", Range: &gpumux.Range{End: 200}, Ladder: []string{"cpu"}, Chunk: 100})
	require.NoError(t, err)
	require.Equal(t, map[gpumux.FaultKind]int64{gpumux.FaultCrash: 1}, sum.Faults)
	require.Equal(t, 199, s.succeeded(sum))
	f := s.results(sum)[61].Fault
	require.NotNil(t, f)
	require.True(t, f.Alone)
	deaths, err := os.ReadFile(filepath.Join(s.dir, "markers", "deaths"))
	require.NoError(t, err)
	require.LessOrEqual(t, len(deaths), 2+4+3, "twice among 16, by halves, after others, and alone twice")
}

// A process that dies of itself costs the items under way one retry each.
func TestConcurrent_ADeathCostsOneRetry(t *testing.T) {
	s := concurrent(t, "engine")
	sum, err := s.run(gpumux.MapInput{Task: "engine", Range: &gpumux.Range{End: 100}, Ladder: []string{"cpu"}, Chunk: 100})
	require.NoError(t, err)
	require.Zero(t, sum.Failed)
	require.Equal(t, 100, s.succeeded(sum))
	twice := 0
	for item, times := range s.seen() {
		require.LessOrEqual(t, times, 2, "item %s", item)
		twice += times - 1
	}
	require.Less(t, twice, 16, "those that had begun and were not answered")
}

// A hang is one item's: the others run again and succeed.
func TestConcurrent_ATimeoutIsOneItems(t *testing.T) {
	s := concurrent(t, "hangs")
	sum, err := s.run(gpumux.MapInput{Task: "hangs", Range: &gpumux.Range{End: 40}, Ladder: []string{"cpu"}, Chunk: 40,
		Timeout: gpumux.Duration(2 * time.Second)})
	require.NoError(t, err)
	require.Equal(t, map[gpumux.FaultKind]int64{gpumux.FaultTimeout: 1}, sum.Faults)
	require.Equal(t, 39, s.succeeded(sum))
	require.Equal(t, gpumux.FaultTimeout, s.results(sum)[5].Fault.Kind)
}

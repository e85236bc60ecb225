package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers/config"
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
	require.LessOrEqual(t, len(deaths), 1+5+2, "once among 32, by halves, and alone twice")
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

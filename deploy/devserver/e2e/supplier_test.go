package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap/zaptest"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/deploy/devserver/devservertest"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/workers"
)

// nap sleeps for the item's seconds and says which process it ran in.
const napPy = `
import os, time
def nap(item):
    time.sleep(item)
    return os.getpid()
def die_once(item):
    if not os.path.exists(item):
        open(item, "w").close()
        os.kill(os.getpid(), 9)
    return "alive"
`

// bench is a namespace, a client and what a worker needs.
type bench struct {
	client client.Client
	config workers.Config
	inv    *gpu.Inventory
	host   string
}

func newBench(t *testing.T, slots int) *bench {
	s := devservertest.Run(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "nap.py"), []byte(napPy), 0o644))
	inv, err := gpu.Open(gpu.Options{Static: []gpu.Device{{Index: -1, Kind: gpu.KindCPU, UUID: gpu.CPU, Name: "host", Memory: 8 << 30}}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, inv.Close()) })
	host, err := os.Hostname()
	require.NoError(t, err)
	return &bench{
		client: devservertest.Dial(t, s, devservertest.Namespace(t)),
		config: workers.Local(workers.LocalOptions{
			Pool: "cpu", Slots: slots, TasksDir: dir, Dir: dir, Store: "file://" + filepath.Join(dir, "store"),
		}),
		inv: inv, host: host,
	}
}

// start runs a worker until the test ends or stop is called.
func (b *bench) start(t *testing.T, o workers.Options) *workers.Worker {
	o.Client, o.Inventory, o.Runtime = b.client, b.inv, t.TempDir()
	o.Log = zaptest.NewLogger(t)
	w, err := workers.New(b.config, o)
	require.NoError(t, err)
	require.NoError(t, w.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(t, w.Stop(ctx))
	})
	return w
}

// begin starts a map whose items are JSON texts.
func (b *bench) begin(t *testing.T, task, rung string, chunk int, items ...string) client.WorkflowRun {
	t.Helper()
	in := gpumux.MapInput{Task: task, Ladder: []string{rung}, Chunk: chunk, Items: []json.RawMessage{}}
	for _, item := range items {
		in.Items = append(in.Items, json.RawMessage(item))
	}
	run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: gpumux.Queue}, gpumux.MapWorkflow, in)
	require.NoError(t, err)
	return run
}

func finish(t *testing.T, run client.WorkflowRun, limit time.Duration) gpumux.Summary {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var sum gpumux.Summary
	require.NoError(t, run.Get(ctx, &sum))
	return sum
}

func repeat(item string, n int) []string {
	items := make([]string, n)
	for i := range items {
		items[i] = item
	}
	return items
}

// An idle worker takes work from the pool's queue and from a device's at once, although the polls of each stay open for a
// minute and both share two slots.
func TestSupplier_IdleWorkerServesBothQueues(t *testing.T) {
	b := newBench(t, 2)
	b.start(t, workers.Options{})
	pinned := "cpu@" + b.host + "/" + gpu.CPU
	finish(t, b.begin(t, "nap:nap", "cpu", 1, "0"), 30*time.Second) // the process starts
	for range 5 {
		for _, rung := range []string{"cpu", pinned} {
			began := time.Now()
			sum := finish(t, b.begin(t, "nap:nap", rung, 1, "0"), 20*time.Second)
			require.EqualValues(t, 1, sum.Succeeded)
			require.Less(t, time.Since(began), 3*time.Second, rung)
		}
	}
}

// While a long map fills the pool, a call that is pinned to the device gets the next free slot.
func TestSupplier_PinnedCallPassesAFullPool(t *testing.T) {
	b := newBench(t, 2)
	b.start(t, workers.Options{})
	long := b.begin(t, "nap:nap", "cpu", 1, repeat("0.2", 100)...)
	finish(t, b.begin(t, "nap:nap", "cpu", 1, "0"), 30*time.Second)
	began := time.Now()
	for range 3 {
		finish(t, b.begin(t, "nap:nap", "cpu@"+b.host+"/"+gpu.CPU, 1, "0"), 20*time.Second)
	}
	took := time.Since(began)
	sum := finish(t, long, 60*time.Second)
	require.EqualValues(t, 100, sum.Succeeded)
	require.Less(t, took, 6*time.Second)
	pids := map[string]bool{}
	for _, r := range sum.Results {
		pids[string(r.Value)] = true
	}
	require.Len(t, pids, 2, "two slots, each with one process")
}

// Two slots stay busy: 40 items of 100 ms take little more than 2 s.
func TestSupplier_SlotsStayBusy(t *testing.T) {
	b := newBench(t, 2)
	b.start(t, workers.Options{})
	finish(t, b.begin(t, "nap:nap", "cpu", 1, "0", "0", "0", "0"), 30*time.Second)
	began := time.Now()
	sum := finish(t, b.begin(t, "nap:nap", "cpu", 1, repeat("0.1", 40)...), 30*time.Second)
	t.Logf("40 items of 100 ms in 2 slots: %s", time.Since(began))
	require.EqualValues(t, 40, sum.Succeeded)
	require.Less(t, time.Since(began), 6*time.Second)
}

// A killed process costs its own item another try and nothing else.
func TestSupplier_KilledProcess(t *testing.T) {
	b := newBench(t, 2)
	b.start(t, workers.Options{})
	flag, err := json.Marshal(filepath.Join(t.TempDir(), "died"))
	require.NoError(t, err)
	sum := finish(t, b.begin(t, "nap:die_once", "cpu", 1, string(flag)), 30*time.Second)
	require.EqualValues(t, 1, sum.Succeeded, "%+v", sum)
	sum = finish(t, b.begin(t, "nap:nap", "cpu", 1, repeat("0", 10)...), 20*time.Second)
	require.EqualValues(t, 10, sum.Succeeded)
}

// An unknown task ends the map with the names that exist.
func TestSupplier_UnknownTask(t *testing.T) {
	b := newBench(t, 1)
	b.start(t, workers.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := b.begin(t, "nap:napp", "cpu", 1, "0").Get(ctx, nil)
	require.ErrorContains(t, err, `no task "nap:napp"; this worker has nap:die_once, nap:nap; did you mean "nap:nap"?`)
}

// A worker that stops hands its chunk back; the next worker finishes it, and nothing of the first is left.
func TestWorker_StopHandsBack(t *testing.T) {
	b := newBench(t, 1)
	first := b.start(t, workers.Options{StopTimeout: 500 * time.Millisecond, Grace: time.Second})
	run := b.begin(t, "nap:nap", "cpu", 4, "0", "0", "2", "0")
	pid := childOf(t, "main.py")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	began := time.Now()
	require.NoError(t, first.Stop(ctx))
	require.NoError(t, first.Stop(ctx), "twice is fine")
	require.Less(t, time.Since(began), 10*time.Second)
	require.NoDirExists(t, fmt.Sprintf("/proc/%d", pid))
	require.ErrorContains(t, first.Start(ctx), "make a new one")

	b.start(t, workers.Options{})
	sum := finish(t, run, 40*time.Second)
	require.EqualValues(t, 4, sum.Succeeded, "%+v", sum)
}

// A second signal, that is an ended context, does not wait for the chunk.
func TestWorker_StopAtOnce(t *testing.T) {
	b := newBench(t, 1)
	w := b.start(t, workers.Options{Grace: 500 * time.Millisecond})
	b.begin(t, "nap:nap", "cpu", 1, "60")
	pid := childOf(t, "main.py")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	require.NoError(t, w.Stop(ctx))
	require.Less(t, time.Since(began), 8*time.Second)
	require.NoDirExists(t, fmt.Sprintf("/proc/%d", pid))
}

// childOf waits for a child process of this test whose command line has the word, and returns its number.
func childOf(t *testing.T, word string) int {
	t.Helper()
	found := 0
	require.Eventually(t, func() bool {
		stats, _ := filepath.Glob("/proc/[0-9]*/stat")
		for _, path := range stats {
			stat, err := os.ReadFile(path)
			if err != nil {
				continue
			}
			var pid, parent int
			var state string
			fmt.Sscanf(string(stat), "%d", &pid)
			after := string(stat)[strings.LastIndexByte(string(stat), ')')+1:]
			fmt.Sscanf(after, "%s %d", &state, &parent)
			line, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
			if err == nil && parent == os.Getpid() && strings.Contains(string(line), word) {
				found = pid
				return true
			}
		}
		return false
	}, 20*time.Second, 10*time.Millisecond)
	return found
}

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap/zaptest"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/test/devservertest"
	"github.com/gpumux/gpumux/workers"
	"github.com/gpumux/gpumux/workers/config"
)

// nap sleeps for the item's seconds and says which process it ran in.
const napPy = `
import os, time
def nap(item):
    time.sleep(item)
    return os.getpid()
def wait(item):
    while not os.path.exists(item): time.sleep(0.01)
def die_once(item):
    if not os.path.exists(item):
        open(item, "w").close()
        os.kill(os.getpid(), 9)
    return "alive"
`

// bench is a namespace, a client and what a worker needs.
type bench struct {
	client client.Client
	config config.Config
	inv    *gpu.Inventory
	host   string
}

func newBench(t *testing.T, slots int) *bench {
	s := devservertest.Run(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "nap.py"), []byte(napPy), 0o644))
	inv, err := gpu.Open(t.Context(), gpu.Options{Static: []gpu.Device{{Index: -1, Kind: gpu.KindCPU, UUID: gpu.CPU, Name: "host", Memory: 8 << 30}}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, inv.Close()) })
	host, err := os.Hostname()
	require.NoError(t, err)
	return &bench{
		client: devservertest.Dial(t, s, devservertest.Namespace(t)),
		config: onCPU(cpuPool{
			Pool: "cpu", Slots: slots, TasksDir: dir, Dir: dir, Store: "file://" + filepath.Join(dir, "store"),
		}),
		inv: inv, host: host,
	}
}

// start runs a worker until the test ends or stop is called.
func (b *bench) start(t *testing.T, o workers.Options) *workers.Worker {
	o.Client, o.Inventory, o.Runtime = b.client, b.inv, t.TempDir()
	o.Log = workers.Zap(zaptest.NewLogger(t))
	w, err := workers.New(b.config, o)
	require.NoError(t, err)
	serve(t, w)
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

// Two slots stay busy: 40 items of 100 ms take little more than 2 s. If a poll of another
// queue kept a slot waiting, it would be for a minute.
func TestSupplier_SlotsStayBusy(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2)
	b.start(t, workers.Options{})
	finish(t, b.begin(t, "nap:nap", "cpu", 1, "0", "0", "0", "0"), 2*time.Minute)
	began := time.Now()
	sum := finish(t, b.begin(t, "nap:nap", "cpu", 1, repeat("0.1", 40)...), 50*time.Second)
	t.Logf("40 items of 100 ms in 2 slots: %s", time.Since(began))
	require.EqualValues(t, 40, sum.Succeeded)
}

// A killed process costs its own item another try and nothing else.
func TestSupplier_KilledProcess(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2)
	b.start(t, workers.Options{})
	flag, err := json.Marshal(filepath.Join(t.TempDir(), "died"))
	require.NoError(t, err)
	sum := finish(t, b.begin(t, "nap:die_once", "cpu", 1, string(flag)), 2*time.Minute)
	require.EqualValues(t, 1, sum.Succeeded, "%+v", sum)
	sum = finish(t, b.begin(t, "nap:nap", "cpu", 1, repeat("0", 10)...), 2*time.Minute)
	require.EqualValues(t, 10, sum.Succeeded)
}

// An unknown task ends the map with the names that exist.
func TestSupplier_UnknownTask(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.start(t, workers.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	err := b.begin(t, "nap:napp", "cpu", 1, "0").Get(ctx, nil)
	require.ErrorContains(t, err, "no task \"nap:napp\"; this worker has nap:die_once, nap:nap, nap:wait; name the task in the worker's file, or use one of these")
}

// A worker that stops hands its chunk back; the next worker finishes it, and nothing of
// the first is left.
func TestWorker_StopHandsBack(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	first := b.start(t, workers.Options{StopTimeout: 500 * time.Millisecond, Grace: time.Second})
	gate := filepath.Join(t.TempDir(), "open")
	there, waits := strconv.Quote(b.config.Dir), strconv.Quote(gate)
	run := b.begin(t, "nap:wait", "cpu", 4, there, there, waits, there)
	pid := b.process(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, first.Stop(ctx))
	require.NoError(t, ctx.Err(), "it does not wait for an item that goes on")
	require.NoError(t, first.Stop(ctx), "twice is fine")
	require.NoDirExists(t, fmt.Sprintf("/proc/%d", pid))
	require.ErrorContains(t, first.Start(ctx), "make a new one")

	require.NoError(t, os.WriteFile(gate, nil, 0o644))
	b.start(t, workers.Options{})
	sum := finish(t, run, 2*time.Minute)
	require.EqualValues(t, 4, sum.Succeeded, "%+v", sum)
}

// A second signal, that is an ended context, does not wait for the chunk.
func TestWorker_StopAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	w := b.start(t, workers.Options{StopTimeout: time.Hour, Grace: 500 * time.Millisecond})
	b.begin(t, "nap:nap", "cpu", 1, "3600")
	pid := b.process(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- w.Stop(ctx) }()
	select {
	case err := <-stopped:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Fatal("Stop waits for the chunk")
	}
	require.NoDirExists(t, fmt.Sprintf("/proc/%d", pid))
}

// process waits for the worker's task process and returns its number.
func (b *bench) process(t *testing.T) int {
	t.Helper()
	var pids []int
	rig.Wait(t, func() bool { pids = pidsIn(t, b.config.Dir); return len(pids) > 0 }, time.Minute, 10*time.Millisecond)
	return pids[0]
}

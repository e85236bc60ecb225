package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/codec"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/test/devservertest"
	"github.com/gpumux/gpumux/workers"
	"github.com/gpumux/gpumux/workflows"
)

// newLeaseHost is a host with a server, whose workers have so many slots and the
// functions of model.py.
func newLeaseHost(t *testing.T, slots int) *host {
	t.Helper()
	h := newHost(t)
	h.write("model.py", modelPy)
	h.write("sleeps", "")
	tasks := ""
	for _, name := range []string{"load", "infer", "pid", "sleep", "gate"} {
		tasks += fmt.Sprintf("  %s: {python: \"model.py:%s\"}\n", name, name)
	}
	h.write("worker.yaml", fmt.Sprintf("store: file://%s\npools: [{name: cpu, devices: cpu, slots: %d}]\ntasks:\n%s", h.path("store"), slots, tasks))
	h.server()
	return h
}

// Leases on a worker that is killed end within a minute: as a fault that says what
// was lost, or on another worker where they can be built anew.
func TestLease_AKilledWorker(t *testing.T) {
	t.Parallel()
	h := newLeaseHost(t, 8)
	c, err := client.Dial(client.Options{HostPort: "127.0.0.1:" + h.port})
	require.NoError(t, err)
	defer c.Close()
	service := worker.New(c, "service", worker.Options{})
	service.RegisterWorkflowWithOptions(func(ctx workflow.Context, rebuild bool) (got inferred, err error) {
		var model gpumux.Resident
		load := func(ctx workflow.Context, s *workflows.Slot) (err error) {
			model, err = workflows.Call[gpumux.Resident](ctx, s, "load", 7)
			return err
		}
		o := workflows.LeaseOptions{Ladder: []string{"cpu"}}
		if rebuild {
			o.Rebuild = load
		}
		err = workflows.WithSlot(ctx, o, func(ctx workflow.Context, s *workflows.Slot) error {
			if err := load(ctx, s); err != nil {
				return err
			}
			if _, err := workflows.Call[any](ctx, s, "gate", h.path("open")); err != nil {
				return err
			}
			got, err = workflows.Call[inferred](ctx, s, "infer", map[string]any{"model": model, "x": 6})
			return err
		})
		return got, err
	}, workflow.RegisterOptions{Name: "lost"})
	require.NoError(t, service.Start())
	defer service.Stop()

	first := h.worker()
	var runs []client.WorkflowRun
	for i := range 4 {
		run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: fmt.Sprint("lost-", i), TaskQueue: "service"}, "lost", i >= 2)
		require.NoError(t, err)
		runs = append(runs, run)
	}
	for i := range runs {
		rig.Wait(t, func() bool { // the worker tells it every 10 s
			shown := h.begin("show", fmt.Sprint("lost-", i))
			<-shown.ended
			return strings.Contains(shown.stdout.String(), "runs gate, residents: 1 of 3.9KiB, ends within ")
		}, time.Minute, 100*time.Millisecond)
	}
	shown := h.begin("workers")
	<-shown.ended
	require.Contains(t, shown.stdout.String(), "4 leased")

	h.worker()
	require.NoError(t, first.Process.Kill())
	h.write("open", "")
	killed := time.Now()
	for i, run := range runs {
		ctx, cancel := context.WithDeadline(t.Context(), killed.Add(time.Minute))
		defer cancel()
		var got inferred
		err := run.Get(ctx, &got)
		if i < 2 {
			require.ErrorContains(t, err, "slot_lost")
			require.ErrorContains(t, err, "gave no sign of life")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, 42, got.Value)
	}
}

// A hundred leases on four slots all come to their end, two at a time, and a map beside
// them has the other two slots. Leases that hold all that leases may have, and others
// that wait for it, leave a map the rest of the slots.
func TestLease_LongOnesBesideAMap(t *testing.T) {
	l := newLeases(t)
	w := l.offer("cpu", 2)
	l.register("long", func(ctx workflow.Context, gate string) (path string, err error) {
		err = workflows.WithSlot(ctx, workflows.LeaseOptions{Ladder: []string{"cpu"}}, func(ctx workflow.Context, s *workflows.Slot) error {
			path, err = workflows.Call[string](ctx, s, "model:gate", gate)
			return err
		})
		return path, err
	})
	l.begin()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	gate := filepath.Join(l.dir, "gate")
	var runs []client.WorkflowRun
	for i := range 6 {
		runs = append(runs, l.execute(fmt.Sprint("long-", i), "long", gate))
	}
	rig.Wait(t, func() bool { return w.Describe().Pools[0].Leased == 1 }, time.Minute, 10*time.Millisecond)
	var sum gpumux.Summary
	require.NoError(t, l.start(gpumux.MapInput{Task: "model:pid", Range: &gpumux.Range{End: 500}, Ladder: []string{"cpu"}, Chunk: 5}).Get(ctx, &sum))
	require.EqualValues(t, 500, sum.Succeeded)
	require.Equal(t, 1, w.Describe().Pools[0].Leased)
	require.NoError(t, os.WriteFile(gate, nil, 0o600))
	for _, run := range runs {
		require.NoError(t, run.Get(ctx, nil))
	}
}

// A version of a deployment remembers its queues for ever. Those of leases are none of
// them.
func TestLease_OfAWorkerInADeployment(t *testing.T) {
	l := newLeases(t)
	c := onCPU(cpuPool{Pool: "cpu", Slots: 2, TasksDir: l.dir, Dir: l.dir, Store: l.store})
	c.Temporal.Deployment, c.Temporal.Build = "gpus", "v7"
	l.serve(c)
	deployment := l.client.WorkerDeploymentClient().GetHandle("gpus")
	rig.Wait(t, func() bool {
		_, err := deployment.SetCurrentVersion(t.Context(), client.WorkerDeploymentSetCurrentVersionOptions{BuildID: "v7"})
		return err == nil
	}, time.Minute, 100*time.Millisecond)
	l.register("products", products)
	l.begin()
	require.NoError(t, l.execute("products", "products", 3).Get(t.Context(), nil))
	version, err := deployment.DescribeVersion(t.Context(), client.WorkerDeploymentDescribeVersionOptions{BuildID: "v7"})
	require.NoError(t, err)
	var queues []string
	for _, each := range version.Info.TaskQueuesInfos {
		queues = append(queues, each.Name)
	}
	require.Contains(t, queues, "gpumux.cpu.lease", "on which leases ask for a slot")
	require.NotRegexp(t, `gpumux\.lease\.`, strings.Join(queues, " "), "which a lease serves alone")
}

// What could not move to a lease that is over does not stay in the store.
func TestLease_AMoveToALeaseThatIsOver(t *testing.T) {
	l := newLeases(t)
	l.offer("cpu", 4)
	l.register("moves", func(ctx workflow.Context, gate string) (said []string, err error) {
		o := workflows.LeaseOptions{Ladder: []string{"cpu"}}
		err = workflows.WithSlot(ctx, o, func(ctx workflow.Context, from *workflows.Slot) error {
			model, err := workflows.Call[gpumux.Resident](ctx, from, "model:load", 3)
			if err != nil {
				return err
			}
			o.TTL = time.Second
			return workflows.WithSlot(ctx, o, func(ctx workflow.Context, to *workflows.Slot) error {
				_, late := workflows.Call[string](ctx, to, "model:gate", gate)
				_, lost := workflows.Move(ctx, model, from, to)
				task, _ := workflows.Call[string](ctx, from, "model:task", nil)
				said = append(said, fmt.Sprint(late), fmt.Sprint(lost), task)
				return nil
			})
		})
		return said, err
	})
	l.begin()
	var said []string
	require.NoError(t, l.execute("moves", "moves", filepath.Join(l.dir, "never")).Get(t.Context(), &said))
	require.Contains(t, said[0], "the time to live of the lease, 1s, is over")
	require.Contains(t, said[1], "the time to live of the lease, 1s, is over")
	require.Equal(t, "model:task", said[2], "a call knows its own task, not the first one of the process")
	left, err := filepath.Glob(filepath.Join(l.dir, "store", "leases", "*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// A service without the workers' keys learns that this is the reason.
func TestLease_AServiceWithoutTheKeys(t *testing.T) {
	l := newLeases(t)
	keys := filepath.Join(l.dir, "main.key")
	require.NoError(t, os.WriteFile(keys, []byte(strings.Repeat("0f", 32)), 0o600))
	secret, err := codec.Load(keys)
	require.NoError(t, err)
	c := onCPU(cpuPool{Pool: "cpu", Slots: 2, TasksDir: l.dir, Dir: l.dir, Store: l.store})
	c.Codec.Keys = keys
	o := client.Options{HostPort: devservertest.Run(t).Address(), Namespace: l.namespace}
	codec.Apply(&o, secret)
	theirs, err := client.Dial(o)
	require.NoError(t, err)
	t.Cleanup(theirs.Close)
	w, err := workers.New(c, workers.Options{Client: theirs, Codec: secret, StopTimeout: time.Second, Grace: time.Second})
	require.NoError(t, err)
	serve(t, w)
	l.register("products", products)
	l.begin()
	err = l.execute("products", "products", 3).Get(t.Context(), nil)
	require.ErrorContains(t, err, "the worker's answer cannot be read: ")
	require.ErrorContains(t, err, "keys of the gpumux workers")
}

func TestLong_LeaseAHundredBesideAMap(t *testing.T) {
	l := newLeases(t)
	w := l.offer("cpu", 4)
	l.register("short", func(ctx workflow.Context, seed int) (got inferred, err error) {
		err = workflows.WithSlot(ctx, workflows.LeaseOptions{Ladder: []string{"cpu"}}, func(ctx workflow.Context, s *workflows.Slot) error {
			model, err := workflows.Call[gpumux.Resident](ctx, s, "model:load", seed)
			if err == nil {
				got, err = workflows.Call[inferred](ctx, s, "model:infer", map[string]any{"model": model, "x": 2})
			}
			return err
		})
		return got, err
	})
	l.begin()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var ended atomic.Int32
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			var got inferred
			if err := l.execute(fmt.Sprint("short-", i), "short", i).Get(ctx, &got); err != nil || got.Value != 2*i {
				t.Errorf("lease %d: %d, %v", i, got.Value, err)
			}
			ended.Add(1)
		})
	}
	rig.Wait(t, func() bool { return ended.Load() > 0 }, time.Minute, 10*time.Millisecond)
	most := 0
	watched, stop := context.WithCancel(ctx)
	all.Go(func() {
		for watched.Err() == nil {
			most = max(most, w.Describe().Pools[0].Leased)
			time.Sleep(5 * time.Millisecond)
		}
	})
	var sum gpumux.Summary
	require.NoError(t, l.start(gpumux.MapInput{Task: "model:pid", Range: &gpumux.Range{End: 2000}, Ladder: []string{"cpu"}}).Get(ctx, &sum))
	require.EqualValues(t, 2000, sum.Succeeded)
	require.Less(t, ended.Load(), int32(100), "the map did not wait for the leases")
	rig.Wait(t, func() bool { return ended.Load() == 100 }, 4*time.Minute, 10*time.Millisecond)
	stop()
	all.Wait()
	require.Equal(t, 2, most)
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "gpumux-resident-*"))
	require.NoError(t, err)
	require.Empty(t, strings.Join(left, " "))
}

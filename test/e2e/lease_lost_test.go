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
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/workflows"
)

// newLeaseHost is a host whose workers have so many slots and the
// functions of model.py.
func newLeaseHost(t *testing.T, slots int) *host {
	t.Helper()
	h := newHost(t)
	h.write("model.py", modelPy)
	tasks := ""
	for _, name := range []string{"load", "infer", "gate"} {
		tasks += fmt.Sprintf("  %s: {python: \"model.py:%s\"}\n", name, name)
	}
	h.write("worker.yaml", fmt.Sprintf("store: file://%s\npools: [{name: cpu, devices: cpu, slots: %d}]\ntasks:\n%s", h.path("store"), slots, tasks))
	return h
}

// Leases on a worker that is killed end within a minute: as a fault that says what
// was lost, or on another worker where they can be built anew.
func TestLease_AKilledWorker(t *testing.T) {
	t.Parallel()
	h := newLeaseHost(t, 8)
	c := h.client()
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
// them has the other two slots.
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

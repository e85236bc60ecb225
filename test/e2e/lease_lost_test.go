package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
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
	service(t, c, map[string]any{"lost": func(ctx workflow.Context, rebuild bool) (got inferred, err error) {
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
	}})

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

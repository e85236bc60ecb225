package e2e

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/workflows"
)

// threeCalls starts a service with a workflow "three": it calls pid, sleep and pid again
// on a lease, and says what each gave.
func (h *host) threeCalls() client.Client {
	c, err := client.Dial(client.Options{HostPort: "127.0.0.1:" + h.port})
	require.NoError(h.t, err)
	h.t.Cleanup(c.Close)
	service := worker.New(c, "service", worker.Options{})
	service.RegisterWorkflowWithOptions(func(ctx workflow.Context, sleep int) (said []string, err error) {
		err = workflows.WithSlot(ctx, workflows.LeaseOptions{Ladder: []string{"cpu"}}, func(ctx workflow.Context, s *workflows.Slot) error {
			for _, each := range []struct {
				task string
				item int
			}{{"pid", 1}, {"sleep", sleep}, {"pid", 1}} {
				got, err := workflows.Call[any](ctx, s, each.task, each.item)
				if err != nil {
					said = append(said, err.Error())
				} else {
					said = append(said, fmt.Sprint(got))
				}
			}
			return nil
		})
		return said, err
	}, workflow.RegisterOptions{Name: "three"})
	require.NoError(h.t, service.Start())
	h.t.Cleanup(service.Stop)
	return c
}

func (h *host) beginThree(c client.Client, sleep int) client.WorkflowRun {
	run, err := c.ExecuteWorkflow(h.t.Context(), client.StartWorkflowOptions{ID: fmt.Sprint("three-", sleep), TaskQueue: "service"}, "three", sleep)
	require.NoError(h.t, err)
	return run
}

// A worker that stops lets the call that runs go on to its end, and its value counts. The
// next one learns why the slot is lost.
func TestLease_AWorkerThatStops(t *testing.T) {
	t.Parallel()
	h := newLeaseHost(t, 4)
	c := h.threeCalls()
	w := h.worker()
	run := h.beginThree(c, 5)
	rig.Wait(t, func() bool { return len(h.file("sleeps")) == 1 }, time.Minute, 10*time.Millisecond)
	require.NoError(t, w.Process.Signal(syscall.SIGTERM))
	var said []string
	require.NoError(t, run.Get(t.Context(), &said))
	require.Equal(t, "<nil>", said[1])
	require.Contains(t, said[2], "slot_lost")
	require.Contains(t, said[2], "the worker that held the slot stops")
}

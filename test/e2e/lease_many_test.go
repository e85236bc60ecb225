package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workflows"
)

// A lease that waits for its slot has three activities, and the server never completes a
// workflow task with more than 2,000 under way. So leases wait for their turn to ask, and
// hold up neither leases of other pools nor maps.
func TestLease_HundredsWaitForTheirTurn(t *testing.T) {
	l := newLeases(t)
	l.offer("cpu", 2)
	l.register("many", func(ctx workflow.Context) error {
		within, cancel := workflow.WithCancel(ctx)
		all, served := workflow.NewWaitGroup(ctx), error(nil)
		for range 700 {
			all.Add(1)
			workflow.Go(within, func(ctx workflow.Context) {
				defer all.Done()
				o := workflows.LeaseOptions{Ladder: []string{"nobody"}, Patience: time.Hour}
				if err := workflows.WithSlot(ctx, o, func(workflow.Context, *workflows.Slot) error { return nil }); !temporal.IsCanceledError(err) {
					served = fmt.Errorf("a lease that nobody serves: %w", err)
				}
			})
		}
		if err := workflow.Sleep(ctx, time.Millisecond); err != nil { // they ask
			return err
		}
		err := workflows.WithSlot(ctx, workflows.LeaseOptions{Ladder: []string{"cpu"}}, func(ctx workflow.Context, s *workflows.Slot) error {
			if _, err := workflows.Call[int](ctx, s, "model:pid", nil); err != nil {
				return err
			}
			_, err := workflows.Map[int, int](ctx, gpumux.MapInput{Task: "model:pid", Ladder: []string{"cpu"}}, []int{0, 1, 2})
			return err
		})
		cancel()
		all.Wait(ctx)
		return errors.Join(err, served)
	})
	l.begin()
	run := l.execute("many", "many")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	require.NoError(t, run.Get(ctx, nil))
}

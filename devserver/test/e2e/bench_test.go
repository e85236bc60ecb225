package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workflows"
)

// BenchmarkMap_OneItem compares a workflow that maps one item with one that runs one
// activity that does nothing, on the same server in the same run.
func BenchmarkMap_OneItem(b *testing.B) {
	s := newSite(b)
	s.worker("cpu", 1)
	w := worker.New(s.client, "service", worker.Options{MaxConcurrentActivityTaskPollers: 4, MaxConcurrentWorkflowTaskPollers: 4})
	w.RegisterActivityWithOptions(func(context.Context, int) (int, error) { return 0, nil }, activity.RegisterOptions{Name: "nothing"})
	w.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
		ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute})
		return workflow.ExecuteActivity(ctx, "nothing", 1).Get(ctx, nil)
	}, workflow.RegisterOptions{Name: "activity"})
	w.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
		_, err := workflows.Map[int, int](ctx, gpumux.MapInput{Task: "double", Ladder: []string{"cpu"}}, []int{1})
		return err
	}, workflow.RegisterOptions{Name: "map"})
	require.NoError(b, w.Start())
	defer w.Stop()
	run := func(b *testing.B, name string) {
		run, err := s.client.ExecuteWorkflow(b.Context(), client.StartWorkflowOptions{TaskQueue: "service"}, name)
		require.NoError(b, err)
		require.NoError(b, run.Get(b.Context(), nil))
	}
	run(b, "map")
	for _, name := range []string{"activity", "map"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				run(b, name)
			}
		})
	}
}

package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/test/devservertest"
	"github.com/gpumux/gpumux/workflows"
)

// A chunk that a worker sends back is not tried again once its map is cancelled, and the
// server then says why it was sent back. The map was cancelled all the same.
func TestMap_CancelledWhileAChunkComesBack(t *testing.T) {
	t.Parallel()
	c := dial(t, client.Options{Namespace: devservertest.Namespace(t)})
	began, goBack := make(chan struct{}), make(chan struct{})
	w := worker.New(c, names.PoolQueue("cpu"), worker.Options{})
	w.RegisterActivityWithOptions(func(context.Context, contract.Chunk) (contract.ChunkResult, error) {
		close(began)
		<-goBack
		return contract.ChunkResult{}, temporal.NewApplicationErrorWithOptions("no slot", string(gpumux.FaultCanceled),
			temporal.ApplicationErrorOptions{Details: []any{gpumux.Fault{Kind: gpumux.FaultCanceled, Message: "no slot"}}})
	}, activity.RegisterOptions{Name: contract.RunChunk})
	w.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
		_, err := workflows.Map[int, int](ctx, gpumux.MapInput{Task: "any", Ladder: []string{"cpu"}}, []int{1})
		return err
	}, workflow.RegisterOptions{Name: "one"})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: names.PoolQueue("cpu")}, "one")
	require.NoError(t, err)
	<-began
	require.NoError(t, c.CancelWorkflow(t.Context(), run.GetID(), ""))
	require.Eventually(t, func() bool { return happened(t, c, run, enums.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED) }, 20*time.Second, 10*time.Millisecond)
	close(goBack)
	err = run.Get(t.Context(), nil)
	require.True(t, temporal.IsCanceledError(err), "%v", err)
	require.True(t, happened(t, c, run, enums.EVENT_TYPE_ACTIVITY_TASK_FAILED), "the chunk said why it was sent back")
}

func happened(t *testing.T, c client.Client, run client.WorkflowRun, what enums.EventType) bool {
	t.Helper()
	events := c.GetWorkflowHistory(t.Context(), run.GetID(), run.GetRunID(), false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		require.NoError(t, err)
		if event.EventType == what {
			return true
		}
	}
	return false
}

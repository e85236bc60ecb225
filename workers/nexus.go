package workers

import (
	"cmp"
	"context"

	"github.com/nexus-rpc/sdk-go/nexus"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporalnexus"
	"go.temporal.io/sdk/worker"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/names"
)

func registerNexus(r worker.NexusServiceRegistry) {
	service := nexus.NewService(gpumux.NexusService)
	service.MustRegister(temporalnexus.MustNewWorkflowRunOperationWithOptions(
		temporalnexus.WorkflowRunOperationOptions[converter.RawValue, gpumux.Summary]{Name: gpumux.MapOperation, Handler: startMap}))
	r.RegisterNexusService(service)
}

// startMap hands the input on unread: the workflow checks it, as that of any client, and
// a mistake is then the operation's error.
func startMap(ctx context.Context, in converter.RawValue, o nexus.StartOperationOptions) (temporalnexus.WorkflowHandle[gpumux.Summary], error) {
	id := cmp.Or(o.Header.Get(gpumux.MapIDHeader), "nexus-"+o.RequestID) // the same for every try to start
	if err := names.ID(id); err != nil {
		return nil, nexus.NewHandlerErrorf(nexus.HandlerErrorTypeBadRequest, "header %s: %v", gpumux.MapIDHeader, err)
	}
	return temporalnexus.ExecuteUntypedWorkflow[gpumux.Summary](ctx, o, client.StartWorkflowOptions{
		ID: id, TaskQueue: gpumux.Queue, WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
	}, gpumux.MapWorkflow, in)
}

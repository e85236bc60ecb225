package e2e

import (
	"context"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
)

// older is a client of a server without standalone activities, as before 1.32.
type older struct{ client.Client }

func (older) ExecuteActivity(context.Context, client.StartActivityOptions, any, ...any) (client.ActivityHandle, error) {
	return nil, serviceerror.NewUnimplemented("unknown method StartActivityExecution for service temporal.api.workflowservice.v1.WorkflowService")
}

package workers

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"

	"github.com/gpumux/gpumux/internal/contract"
)

// heartbeatLimit is how long the answer to a heartbeat may take. With the heartbeat before, the chunk is given up three seconds before
// the server hands it on.
const heartbeatLimit = contract.HeartbeatTimeout - contract.HeartbeatEvery - 3*time.Second

// patient lets heartbeats wait for their answer longer than the SDK does, which takes a server that is busy for one interval for lost
// and cancels the activity.
func patient(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if method != workflowservice.WorkflowService_RecordActivityTaskHeartbeat_FullMethodName {
		return call(ctx, method, req, reply, cc, opts...)
	}
	longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), heartbeatLimit)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			cancel()
		}
	})()
	return call(longer, method, req, reply, cc, opts...)
}

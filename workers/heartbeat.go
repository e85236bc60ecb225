package workers

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"

	"github.com/gpumux/gpumux/internal/contract"
)

// heartbeatLimit is how long the answer to a heartbeat may take. It ends three seconds before the server hands the chunk on, even if
// the heartbeat before is the last one that arrived.
const heartbeatLimit = contract.HeartbeatTimeout - contract.HeartbeatEvery - 3*time.Second

// patient waits longer for the answer to a heartbeat than the SDK does, and for a server that is away. The SDK cancels the activity if a
// server is busy or away for one interval.
func patient(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
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
	return call(longer, method, req, reply, cc, append(opts, grpc.WaitForReady(true))...)
}

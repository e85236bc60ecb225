package workers

import (
	"context"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// reportLimit bounds one try to report the end of an activity, reportPause comes between two.
	reportLimit = 10 * time.Second
	reportPause = 500 * time.Millisecond
)

// patient reports the end of an activity until the server answers or the worker stops. The SDK gives up after ten seconds,
// and a finished chunk would run again.
func (w *Worker) patient(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	switch method {
	case workflowservice.WorkflowService_RespondActivityTaskCompleted_FullMethodName,
		workflowservice.WorkflowService_RespondActivityTaskFailed_FullMethodName,
		workflowservice.WorkflowService_RespondActivityTaskCanceled_FullMethodName:
	default:
		return call(ctx, method, req, reply, cc, opts...)
	}
	for {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportLimit)
		err := call(limited, method, req, reply, cc, opts...)
		cancel()
		if code := status.Code(err); code != codes.Unavailable && code != codes.DeadlineExceeded {
			return err
		}
		select {
		case <-time.After(reportPause):
		case <-w.life.Done():
			return err
		}
	}
}

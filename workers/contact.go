package workers

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc/codes"
)

// contact ends activities before the server gives their work to another worker. It owns
// their heartbeats, and for how long each counts as this worker's: from each answered
// heartbeat for its timeout, less a second. It never touches a process and never ends the
// worker. A contact follows the activities of a worker. Its methods may be called from
// any goroutine.
type contact struct {
	interceptor.WorkerInterceptorBase
	// Client sends the heartbeats. It is set before an activity begins.
	Client client.Client

	// now is a clock that does not stop with this program or the system.
	now func() time.Duration
	log *zap.Logger
}

// newContact follows activities by now, which is uptime. Where many end together, the log
// says so once.
func newContact(now func() time.Duration, log *zap.Logger) *contact {
	return &contact{now: now, log: log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(c, 5*time.Second, 1, 0)
	}))}
}

func (k *contact) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &inbound{ActivityInboundInterceptorBase: interceptor.ActivityInboundInterceptorBase{Next: next}, contact: k}
}

type inbound struct {
	interceptor.ActivityInboundInterceptorBase
	contact *contact
}

func (i *inbound) Init(next interceptor.ActivityOutboundInterceptor) error {
	return i.Next.Init(&outbound{interceptor.ActivityOutboundInterceptorBase{Next: next}})
}

func (i *inbound) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	if timeout := activity.GetInfo(ctx).HeartbeatTimeout; timeout > 0 {
		var stop func()
		ctx, stop = i.contact.Follow(ctx, timeout)
		defer stop()
	}
	return i.Next.ExecuteActivity(ctx, in)
}

type outbound struct {
	interceptor.ActivityOutboundInterceptorBase
}

// RecordHeartbeat returns when the server has answered, or contact is lost. A refusal
// goes to the SDK, which asks the server itself and ends the activity.
func (o *outbound) RecordHeartbeat(ctx context.Context, details ...any) {
	p, ok := ctx.Value(pulseKey{}).(*pulse)
	if !ok {
		o.Next.RecordHeartbeat(ctx, details...) // nobody hands the activity on without heartbeats
		return
	}
	info := activity.GetInfo(ctx)
	err := p.beat(ctx, func(ctx context.Context) error {
		return p.worker.Client.RecordActivityHeartbeatWithOptions(ctx, client.RecordActivityHeartbeatOptions{
			TaskToken: info.TaskToken, WorkflowID: info.WorkflowExecution.ID, ActivityType: info.ActivityType.Name, TaskQueue: info.TaskQueue,
			Details: details,
		})
	})
	if err != nil && !absent(err) && ctx.Err() == nil {
		o.Next.RecordHeartbeat(ctx, details...)
	}
}

// absent reports whether an error says that the server, or a service behind it, did not
// answer. Everything else is an answer.
func absent(err error) bool {
	if err == nil || endOrdered(err) {
		return false
	}
	switch serviceerror.ToStatus(err).Code() {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.ResourceExhausted, codes.Aborted, codes.Internal, codes.Unknown:
		return true
	}
	return false
}

// endOrdered reports whether the server knows the activity and wants it to end.
func endOrdered(err error) bool {
	return temporal.IsCanceledError(err) || errors.Is(err, activity.ErrActivityPaused) || errors.Is(err, activity.ErrActivityReset)
}

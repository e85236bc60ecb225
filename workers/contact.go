package workers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc/codes"

	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/contract"
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

const (
	// tryLimit bounds one try of a heartbeat, lastLimit that of an activity that has ended;
	// tryPause comes between two.
	tryLimit  = 10 * time.Second
	lastLimit = 2 * time.Second
	tryPause  = 200 * time.Millisecond
	// contactEvery is how often an activity looks at the clock: timers stand still while the
	// system sleeps.
	contactEvery = time.Second
)

var errSilence = fmt.Errorf("worker and Temporal server were out of each other's reach too long; the server gives what ran here to "+
	"others, so it ends here: %w", calls.ErrLapsed)

// pulse is the contact of one activity. Its heartbeats have contexts of their own: the
// SDK ends an activity whose heartbeat is not answered within seconds.
type pulse struct {
	worker *contact
	limit  time.Duration
	// held ends with contact.
	held context.Context
	lose context.CancelCauseFunc

	sending sync.Mutex // one heartbeat goes out at a time, so that none overtakes a later one

	mu sync.Mutex // guards what follows
	// answered is when the last answered heartbeat was sent.
	answered time.Duration
	timer    *time.Timer
	ended    bool
}

type pulseKey struct{}

// Follow begins the contact of an activity with this heartbeat timeout. The context that
// it returns ends with contact. Stop ends the following.
func (k *contact) Follow(ctx context.Context, timeout time.Duration) (followed context.Context, stop func()) {
	// The activity may have been under way for a while; one that was for longer begins with
	// a heartbeat. The timeout is short where that of the workflow is.
	limit := timeout - min(contract.Ending, timeout/4)
	moment := min(contract.Arrival, limit/3)
	p := &pulse{worker: k, limit: limit, answered: k.now() - moment}
	p.held, p.lose = context.WithCancelCause(context.WithValue(context.Background(), pulseKey{}, p))
	p.mu.Lock()
	p.timer = time.AfterFunc(min(limit-moment, contactEvery), func() { p.left() })
	p.mu.Unlock()
	ctx, unlink := until(context.WithValue(ctx, pulseKey{}, p), p.held)
	return ctx, func() {
		p.mu.Lock()
		p.ended = true
		p.timer.Stop()
		p.mu.Unlock()
		unlink()
	}
}

// contactOf is a context that ends when the contact of ctx's activity is lost;
// calls.ErrLapsed is in its cause. Outside of an activity it never ends.
func contactOf(ctx context.Context) context.Context {
	if p, ok := ctx.Value(pulseKey{}).(*pulse); ok {
		return p.held
	}
	return context.Background()
}

// checkContact is why the holder of a context of contactOf must end, or nil. It asks the
// clock, since this program may have been stopped until now.
func checkContact(held context.Context) error {
	if p, ok := held.Value(pulseKey{}).(*pulse); ok {
		p.left()
	}
	return context.Cause(held)
}

// left is how long the activity may go on without a further answer. If that is over, left
// ends the activity.
func (p *pulse) left() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return 0
	}
	silent := p.worker.now() - p.answered
	if silent <= p.limit {
		p.timer.Reset(min(p.limit-silent+time.Millisecond, contactEvery))
		return p.limit - silent
	}
	p.ended = true
	p.worker.log.Warn("this worker was out of the Temporal server's reach or was stopped; what ran on it is given up, since its items may run elsewhere",
		zap.Duration("silence", silent.Round(time.Second)))
	p.lose(errSilence)
	return 0
}

// beat sends a heartbeat until the server answers, contact is lost or ctx ends; once
// where ctx has ended already. The error is the server's, or says that there was no
// answer.
func (p *pulse) beat(ctx context.Context, send func(context.Context) error) (err error) {
	p.sending.Lock()
	defer p.sending.Unlock()
	last := ctx.Err() != nil
	if last {
		ctx = context.WithoutCancel(ctx)
	}
	for {
		limit := min(p.left(), tryLimit)
		if last {
			limit = min(limit, lastLimit)
		}
		if limit <= 0 {
			return errSilence
		}
		sent := p.worker.now()
		try, cancel := context.WithTimeout(ctx, limit)
		err = send(try)
		cancel()
		if err == nil || endOrdered(err) {
			p.mu.Lock()
			p.answered = max(p.answered, sent)
			p.mu.Unlock()
		}
		if !absent(err) || last {
			return err
		}
		select {
		case <-time.After(tryPause):
		case <-p.held.Done():
			return errSilence
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

package workers

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/contract"
)

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
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, pulseKey{}, p))
	unlink := context.AfterFunc(p.held, func() { cancel(context.Cause(p.held)) })
	return ctx, func() {
		p.mu.Lock()
		p.ended = true
		p.timer.Stop()
		p.mu.Unlock()
		unlink()
		cancel(nil)
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

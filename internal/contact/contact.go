// Package contact ends activities before the server gives their work to another worker.
//
// It owns the heartbeats of activities, and for how long each counts as this worker's:
// from each answered heartbeat for its timeout, less a second. It asks the server every
// second whether work could go on, and more seldom while there has been none for long. It
// never touches a process and never ends the worker.
// Run stops with its context, an activity's contact with the activity.
package contact

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
	"google.golang.org/grpc/codes"

	"github.com/gpumux/gpumux/internal/contract"
)

const (
	// Limit is the age of the last answer from which the server counts as away.
	Limit = contract.Contact
	// askEvery is the pause between two questions, askLimit the longest wait.
	askEvery = time.Second
	askLimit = 1750 * time.Millisecond
	// idleEvery is the pause once there has been no activity for quiet: most requests of an
	// idle worker are these questions. With askLimit it is less than Limit.
	idleEvery = 4 * time.Second
	quiet     = time.Minute
	// stopped is the time without a sign of this program after which it must have been
	// stopped.
	stopped = askEvery + askLimit + time.Second
	// steady is the age of the last answer up to which the connection counts as good.
	steady = askEvery + 500*time.Millisecond
	// openPoll is how long the server keeps a request for work open. A chunk for a request
	// from before a silence may have gone to others since.
	openPoll = 70 * time.Second
)

// Contact knows when the server last answered, and ends the activities of a worker.
// Its methods may be called from any goroutine.
type Contact struct {
	interceptor.WorkerInterceptorBase
	// Client sends the heartbeats. It is set before an activity begins.
	Client client.Client

	ask func(context.Context) error
	// now is a clock that does not stop with this program or the system.
	now func() time.Duration
	log *zap.Logger
	// woken has an element when an activity begins.
	woken chan struct{}

	mu sync.Mutex // guards what follows
	// followed is how many activities there are, used when one last began or ended.
	followed int
	used     time.Duration
	// answered is when the last answered question was asked, awake when Run last ran.
	answered, awake time.Duration
	// doubt is until when a chunk may be another worker's after a silence, rested the same
	// after seldom questions or a slow codec, told when the log last said why activities
	// end.
	doubt, rested, told time.Duration
}

// New begins as if the server had just answered. Ask asks it for a sign of life; now is
// Uptime.
func New(ask func(context.Context) error, now func() time.Duration, log *zap.Logger) *Contact {
	return &Contact{ask: ask, now: now, log: log, woken: make(chan struct{}, 1), used: now(), answered: now(), awake: now()}
}

// Silence is the age of the last answered question.
func (k *Contact) Silence() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now() - k.answered
}

// Late reports whether a chunk that arrives now may already be another worker's.
func (k *Contact) Late() bool {
	k.mu.Lock()
	rested := k.rested
	k.mu.Unlock()
	return k.now() < rested || k.Doubt()
}

// Held notes that a chunk which arrives now was on its way for long after the server gave
// it to this worker.
func (k *Contact) Held() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rested = max(k.rested, k.now()+askEvery)
}

// Doubt reports whether the server is away, or was so shortly before.
func (k *Contact) Doubt() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	return now-k.answered > steady || now < k.doubt
}

// Run asks the server until ctx ends.
func (k *Contact) Run(ctx context.Context) {
	for asked := k.now(); ; {
		pause := k.pause()
		select {
		case <-ctx.Done():
			return
		case <-k.woken:
		case <-time.After(asked + pause - k.now()):
		}
		asked = k.now()
		limited, cancel := context.WithTimeout(ctx, askLimit)
		err := k.ask(limited)
		cancel()
		k.renew(asked, pause, err)
	}
}

// pause is the time until the next question.
func (k *Contact) pause() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	if k.followed > 0 || now-k.used < quiet || now-k.answered > steady {
		return askEvery
	}
	return idleEvery
}

// uses counts an activity that begins or ends.
func (k *Contact) uses(change int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	idle := k.followed == 0 && k.now()-k.used >= quiet
	k.followed += change
	if k.used = k.now(); idle {
		select {
		case k.woken <- struct{}{}:
		default:
		}
	}
}

// renew records the answer to a question of this time, which came at most a pause after
// the one before.
func (k *Contact) renew(asked, pause time.Duration, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	if now-k.awake > Limit {
		k.tell(now - k.answered)
	}
	k.awake = now
	if Absent(err) {
		return
	}
	silent := now - k.answered
	if silent > Limit {
		k.log.Info("the Temporal server answers again", zap.Duration("silence", silent))
	}
	if silent > steady+pause-askEvery {
		k.doubt = now + openPoll
	}
	if pause > askEvery { // it may have been away in between, and a chunk be late for as long again
		k.rested = now + 2*pause
	}
	k.answered = asked
}

// tell logs once why activities end together. The caller holds the lock.
func (k *Contact) tell(silent time.Duration) {
	now := k.now()
	if k.told > 0 && now-k.told < steady {
		return
	}
	k.told = now
	if paused := now - k.awake; paused < stopped {
		k.log.Error("the Temporal server was out of reach; running items are given up, it hands them on", zap.Duration("silence", silent))
	} else {
		k.log.Warn(fmt.Sprintf("this worker was stopped for %s; what ran on it is given up, since its items may run elsewhere",
			paused.Round(time.Second)))
	}
}

// Absent reports whether an error says that the server, or a service behind it, did not
// answer. Everything else is an answer.
func Absent(err error) bool {
	if err == nil || ordered(err) {
		return false
	}
	switch serviceerror.ToStatus(err).Code() {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.ResourceExhausted, codes.Aborted, codes.Internal, codes.Unknown:
		return true
	}
	return false
}

// ordered reports whether the server knows the activity and wants it to end.
func ordered(err error) bool {
	return temporal.IsCanceledError(err) || errors.Is(err, activity.ErrActivityPaused) || errors.Is(err, activity.ErrActivityReset)
}

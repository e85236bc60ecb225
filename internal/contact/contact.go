// Package contact ends activities before the server gives their work to another worker.
//
// It owns the heartbeats of activities, and for how long each counts as this worker's:
// from each answered heartbeat for its timeout, less a second. It asks the server every
// few seconds whether work could go on. It never touches a process and never ends the
// worker.
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
	// steady is the age of the last answer up to which the connection counts as good: what
	// arrives then has not been under way for longer.
	steady = contract.Arrival
	// askEvery is the pause between two questions, askLimit the longest wait. Together they
	// are less than Limit. Without an answer the next question comes after askAgain.
	askEvery = steady - time.Second
	askLimit = 1750 * time.Millisecond
	askAgain = time.Second
	// stopped is the time without a sign of this program after which it must have been
	// stopped.
	stopped = askEvery + askLimit + time.Second
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

	mu sync.Mutex // guards what follows
	// answered is when the last answered question was asked, awake when Run last ran. Before
	// resumed this program was stopped for paused.
	answered, awake, resumed, paused time.Duration
	// doubt is until when a chunk that arrives may be another worker's after a silence, told
	// when the log last said why activities end.
	doubt, told time.Duration
}

// New begins as if the server had just answered. Ask asks it for a sign of life; now is
// Uptime.
func New(ask func(context.Context) error, now func() time.Duration, log *zap.Logger) *Contact {
	return &Contact{ask: ask, now: now, log: log, answered: now(), awake: now()}
}

// Silence is the age of the last answered question.
func (k *Contact) Silence() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now() - k.answered
}

// Late reports whether a chunk that arrives now may already be another worker's: the
// server is away, or was so shortly before.
func (k *Contact) Late() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	return now-k.answered > steady || now < k.doubt
}

// Held notes that a chunk which arrives now was on its way for long after the server gave
// it to this worker.
func (k *Contact) Held() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.doubt = max(k.doubt, k.now()+steady)
}

// Run asks the server until ctx ends.
func (k *Contact) Run(ctx context.Context) {
	pause := askEvery
	for asked := k.now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(asked + pause - k.now()):
		}
		asked = k.now()
		limited, cancel := context.WithTimeout(ctx, askLimit)
		err := k.ask(limited)
		cancel()
		k.renew(asked, err)
		if pause = askEvery; Absent(err) {
			pause = askAgain
		}
	}
}

// renew records the answer to a question of this time.
func (k *Contact) renew(asked time.Duration, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	if paused := now - k.awake; paused > stopped {
		k.paused, k.resumed = paused, now
	}
	k.awake = now
	if Absent(err) {
		return
	}
	silent := now - k.answered
	if silent > Limit {
		k.log.Info("the Temporal server answers again", zap.Duration("silence", silent))
	}
	if silent > steady {
		k.doubt = now + openPoll
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
	paused := now - k.awake
	if now-k.resumed < askAgain { // Run was the first to notice
		paused = k.paused
	}
	if paused < stopped {
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

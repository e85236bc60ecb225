// Package contact ends calls before the Temporal server gives their chunks to another worker.
//
// It owns how long the worker counts as in contact, which each answer of the server prolongs, and the contexts that end with it. It never touches a process
// and never ends the worker: calls run again when the server is back. Run stops with its context.
package contact

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/workers/slot"
)

// The server gives a chunk to another worker contract.HeartbeatTimeout after its last heartbeat. At the server's last answer that
// heartbeat was at most contract.HeartbeatEvery old: the SDK holds one back for so long after another. So calls must end
// contract.HeartbeatTimeout - contract.HeartbeatEvery after the last answer, less a second for the end itself.
const (
	// Limit is how long calls run on after the server last answered.
	Limit = contract.HeartbeatTimeout - contract.HeartbeatEvery - time.Second
	// askEvery is the pause between two questions to the server, askLimit the longest wait for an answer.
	askEvery = time.Second
	askLimit = Limit / 4
	// pause is the time without a sign of this program from which it was stopped, rather than the server away.
	pause = askEvery + askLimit + time.Second
	// steady is the age of the last answer up to which the connection counts as good: a chunk arrived at once.
	steady = askEvery + 500*time.Millisecond
	// openPoll is how long the server keeps a request for work open. A chunk for a request from before contact was lost may have gone
	// to others since.
	openPoll = 70 * time.Second
)

// errSilence ends calls with contact.
var errSilence = fmt.Errorf("worker and Temporal server were out of each other's reach too long; the server gives what ran here to "+
	"others, so it ends here: %w", slot.ErrLapsed)

// Contact knows when the server last answered. Its methods may be called from any goroutine.
type Contact struct {
	ask func(context.Context) error
	// now is a clock that does not stop with this program or the system.
	now func() time.Duration
	log *zap.Logger

	mu   sync.Mutex // guards what follows
	ctx  context.Context
	lose context.CancelCauseFunc
	// answered is when the last answered question was asked, awake when this program last ran.
	answered, awake time.Duration
	lost            bool
	// lapsed is when contact last ended, late when an answer last came after more than steady; 0 before.
	lapsed, late time.Duration
}

// New begins as if the server had just answered. Ask asks the server for a sign of life; now is Uptime, or a test's own clock.
func New(ask func(context.Context) error, now func() time.Duration, log *zap.Logger) *Contact {
	k := &Contact{ask: ask, now: now, log: log, answered: now(), awake: now()}
	k.ctx, k.lose = context.WithCancelCause(context.Background())
	return k
}

// Held is a context that ends when contact is lost; slot.ErrLapsed is in its cause.
func (k *Contact) Held() context.Context {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	if k.lost {
		gone, lose := context.WithCancelCause(context.Background())
		lose(errSilence)
		return gone
	}
	return k.ctx
}

// Check is why the holder of a context of Held must end, or nil. It asks the clock, since this program may have been stopped until now.
func (k *Contact) Check(held context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	return context.Cause(held)
}

// Silence is the age of the last answered question.
func (k *Contact) Silence() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now() - k.answered
}

// Doubt reports whether a chunk that arrives now may already be another worker's.
func (k *Contact) Doubt() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	now := k.now()
	within := func(since, limit time.Duration) bool { return since > 0 && now-since < limit }
	return within(k.lapsed, openPoll) || within(k.late, contract.HeartbeatTimeout) || now-k.answered > steady
}

// Run asks the server until ctx ends.
func (k *Contact) Run(ctx context.Context) {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	// Contact may end during the wait for an answer.
	deadline := time.NewTimer(Limit)
	defer deadline.Stop()
	answers := make(chan error)
	asking, asked := false, time.Duration(0)
	for {
		var ask <-chan time.Time
		if !asking {
			ask = tick.C
		}
		select {
		case <-ctx.Done():
			return
		case <-deadline.C:
			k.touch()
		case <-ask:
			asked, asking = k.touch(), true
			go func() {
				limited, cancel := context.WithTimeout(ctx, askLimit)
				defer cancel()
				err := k.ask(limited)
				select {
				case answers <- err:
				case <-ctx.Done():
				}
			}()
		case err := <-answers:
			asking = false
			if left := k.renew(asked, err); left > 0 {
				deadline.Reset(left + time.Millisecond)
			}
		}
	}
}

// touch records that this program runs.
func (k *Contact) touch() (now time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	k.awake = k.now()
	return k.awake
}

// renew prolongs contact if a question of this time was answered, and returns how long calls may run on.
func (k *Contact) renew(asked time.Duration, err error) (left time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	k.awake = k.now()
	left = asked + Limit - k.awake
	if err != nil || left <= 0 {
		return 0
	}
	if k.lost {
		k.lost = false
		k.log.Info("the Temporal server answers again")
	}
	if k.awake-k.answered > steady {
		k.late = k.awake
	}
	k.answered = asked
	return left
}

// expire ends the contexts of Held when contact is over; the caller holds the lock.
func (k *Contact) expire() {
	now := k.now()
	silent := now - k.answered
	if k.lost || silent <= Limit {
		return
	}
	k.lost, k.lapsed = true, now
	if stopped := now - k.awake; stopped < pause {
		k.log.Error("the Temporal server was out of reach; running items are given up, it hands them on", zap.Duration("silence", silent))
	} else {
		k.log.Warn(fmt.Sprintf("this worker was stopped for %s; what ran on it is given up, since its items may run elsewhere",
			stopped.Round(time.Second)))
	}
	k.lose(errSilence)
	k.ctx, k.lose = context.WithCancelCause(context.Background())
}

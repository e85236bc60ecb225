// Package contact ends calls before the Temporal server gives their chunks to another worker.
//
// It owns the question whether worker and server see each other, and the contexts that end when they do not. It never touches a
// process, and never ends the worker: calls run again when the server is back. Run stops with its context.
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

// The server hands a chunk on gpumux.HeartbeatTimeout after the last heartbeat that it got. When the server last answered, that
// heartbeat was at most gpumux.HeartbeatEvery old: the SDK holds one back for that long after another. So what runs here must end
// gpumux.HeartbeatTimeout - gpumux.HeartbeatEvery after the last answer; a second is kept for the ending itself.
const (
	// Lease is how long calls run on after the server last answered.
	Lease = contract.HeartbeatTimeout - contract.HeartbeatEvery - time.Second
	// askEvery is how often the server is asked whether it is there, askLimit how long the answer may take.
	askEvery = time.Second
	askLimit = Lease / 4
	// pause is the time without a turn from which a worker was stopped, rather than the server away.
	pause = askEvery + askLimit + time.Second
	// steady is the age of the last answer up to which the way to the server counts as clear: what the server handed out came at
	// once, and did not spend a part of its time under way.
	steady = askEvery + 500*time.Millisecond
	// openPoll is how long the server keeps a request for work open: what it gave to one that was open when contact was lost may
	// have gone to others since.
	openPoll = 70 * time.Second
)

// errSilence ends calls when worker and server lose sight of each other.
var errSilence = fmt.Errorf("worker and Temporal server were out of each other's reach too long; the server gives this chunk to "+
	"another worker, so it ends here: %w", slot.ErrLapsed)

// Contact knows when the server last answered. Its methods may be called from any goroutine.
type Contact struct {
	ask func(context.Context) error
	// now is a clock that goes on while this program, or the whole system, stands still.
	now func() time.Duration
	log *zap.Logger

	mu   sync.Mutex // guards what follows
	ctx  context.Context
	lose context.CancelCauseFunc
	// answered is when the last question that got an answer was asked, awake when the worker was last seen to run.
	answered, awake time.Duration
	lost            bool
	// lapsed is when calls were last given up, halted when an answer last came after more than steady; 0 before.
	lapsed, halted time.Duration
}

// New begins as if the server had just answered. Ask asks whether it is there; now is Uptime, or a test's own clock.
func New(ask func(context.Context) error, now func() time.Duration, log *zap.Logger) *Contact {
	k := &Contact{ask: ask, now: now, log: log, answered: now(), awake: now()}
	k.ctx, k.lose = context.WithCancelCause(context.Background())
	return k
}

// Held is a context that ends when contact is lost; slot.ErrLapsed is in its cause.
func (k *Contact) Held() context.Context {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.look()
	if k.lost {
		gone, lose := context.WithCancelCause(context.Background())
		lose(errSilence)
		return gone
	}
	return k.ctx
}

// Check is why what has taken held must end, or nil. It asks the clock, since this program may have been stopped until now.
func (k *Contact) Check(held context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.look()
	return context.Cause(held)
}

// Silence is how long ago the last question that got an answer was asked.
func (k *Contact) Silence() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now() - k.answered
}

// Doubt reports whether a chunk that arrives now may have been handed on already.
func (k *Contact) Doubt() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.look()
	now := k.now()
	within := func(since, limit time.Duration) bool { return since > 0 && now-since < limit }
	return within(k.lapsed, openPoll) || within(k.halted, contract.HeartbeatTimeout) || now-k.answered > steady
}

// Run asks until ctx ends.
func (k *Contact) Run(ctx context.Context) {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	// When the lease ends while an answer is awaited, calls end all the same.
	deadline := time.NewTimer(Lease)
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
			k.turn()
		case <-ask:
			asked, asking = k.turn(), true
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
			if left := k.answer(asked, err); left > 0 {
				deadline.Reset(left + time.Millisecond)
			}
		}
	}
}

// turn notes that this program runs.
func (k *Contact) turn() (now time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.look()
	k.awake = k.now()
	return k.awake
}

// answer takes in what came of a question that was asked at a time, and returns how long calls may run on.
func (k *Contact) answer(asked time.Duration, err error) (left time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.look()
	k.awake = k.now()
	left = asked + Lease - k.awake
	if err != nil || left <= 0 {
		return 0
	}
	if k.lost {
		k.lost = false
		k.log.Info("the Temporal server answers again")
	}
	if k.awake-k.answered > steady {
		k.halted = k.awake
	}
	k.answered = asked
	return left
}

// look gives up what is held once the lease is over; the caller holds the lock.
func (k *Contact) look() {
	now := k.now()
	silent := now - k.answered
	if k.lost || silent <= Lease {
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

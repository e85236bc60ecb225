package workers

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers/slot"
)

// The server hands a chunk on gpumux.HeartbeatTimeout after the last heartbeat that it got, and at the moment when it last
// answered the worker that was at most gpumux.HeartbeatEvery old, which is two seconds: the SDK holds one back for as long after
// another, and no longer. So everything that runs here must be gone gpumux.HeartbeatTimeout - 2 s after the last answer. The worker
// ends its calls a second before. If it does not, because it is stopped or starved, the fence ends its task processes half a second
// later, which leaves it half a second.
const (
	lease  = gpumux.HeartbeatTimeout - gpumux.HeartbeatEvery - time.Second
	fenced = lease + 500*time.Millisecond
	// askEvery is how often the worker asks the server whether it is there, askLimit how long it waits for the answer.
	askEvery = time.Second
	askLimit = lease / 4
	// pause is the time without a turn from which a worker takes itself for one that was stopped.
	pause = askEvery + askLimit + time.Second
	// steady is the age of the last answer up to which the way to the server counts as clear: what the server handed out came at
	// once, and not after it had been under way for a part of its time.
	steady = askEvery + 500*time.Millisecond
	// openPoll is how long the server keeps a request for work open: what it gave to one that was open when contact was lost
	// may have been given to others since.
	openPoll = 70 * time.Second
)

// errSilence ends calls when the worker and the server lose sight of each other: the server will give their chunks to others.
var errSilence = fmt.Errorf("worker and Temporal server were out of each other's reach too long; the server gives this chunk to "+
	"another worker, so it ends here: %w", slot.ErrLapsed)

// contact ends running calls before the server gives their chunks to another worker, so that no item runs twice at once and
// no two attempts hold device memory together. It never ends the worker: calls run again when the server is back.
type contact struct {
	ask func(context.Context) error
	// now is a clock that goes on while this program, or the whole system, stands still.
	now   func() time.Duration
	fence fence
	log   *zap.Logger
	// fencing is held over each call of the fence, which may block; mu is not, and is only ever taken after it. Who changes what
	// the fence should know calls it afterwards, so that the last call goes by the last change.
	fencing sync.Mutex

	mu   sync.Mutex // guards what follows
	ctx  context.Context
	lose context.CancelCauseFunc
	// answered is when the last question that got an answer was asked, awake when the worker was last seen to run.
	answered, awake time.Duration
	lost            bool
	// lapsed is when calls were last given up, 0 before.
	lapsed time.Duration
	// halted is when an answer last came after more than steady, 0 before.
	halted time.Duration
	calls  int
	// stands says that the fence has a deadline that is good for another call and is not about to lose it; told that it was said
	// that it does not answer.
	stands, told bool
}

// fence ends task processes at a deadline; *slot.Fence is one. Both methods may block for a moment.
type fence interface {
	Hold(until time.Duration) error
	Free() error
}

func newContact(c client.Client, fence fence, log *zap.Logger) *contact {
	return startContact(&contact{log: log, now: slot.Uptime, fence: fence, ask: func(ctx context.Context) error {
		_, err := c.CheckHealth(ctx, &client.CheckHealthRequest{})
		return err
	}})
}

// startContact begins now, as if the server had just answered.
func startContact(k *contact) *contact {
	k.answered = k.now()
	k.awake = k.answered
	k.ctx, k.lose = context.WithCancelCause(context.Background())
	return k
}

// held is a context that ends with errSilence when contact is lost.
func (k *contact) held() context.Context {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ctx
}

// begin lets a call run that has taken held. Until end is called, its process does not outlive contact, whatever happens to this
// program; where that cannot be promised it is not begun.
func (k *contact) begin(held context.Context) (end func(), err error) {
	stands, err := k.enter(held)
	if err != nil {
		return nil, err
	}
	if !stands {
		if err = k.guard(); err != nil {
			err = &unfenced{err}
		} else {
			err = k.check(held) // it may have taken its time
		}
	}
	if err != nil {
		k.leave()
		return nil, err
	}
	return k.leave, nil
}

// enter counts a call in, and says whether the fence has a deadline for it already.
func (k *contact) enter(held context.Context) (stands bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.look()
	if err := context.Cause(held); err != nil {
		return false, err
	}
	if k.lost {
		return false, errSilence
	}
	k.calls++
	return k.stands, nil
}

// leave counts a call out. After the last one, also one that was not begun, no warden must find a deadline by which it ends the
// processes that wait.
func (k *contact) leave() {
	k.mu.Lock()
	k.calls--
	last := k.calls == 0
	k.mu.Unlock()
	if last {
		_ = k.guard() // told
	}
}

// guard tells the fence the deadline of the calls that run, or that there are none.
func (k *contact) guard() error {
	k.fencing.Lock()
	defer k.fencing.Unlock()
	k.mu.Lock()
	calls, until, lapsed := k.calls, k.answered+fenced, k.lapsed
	if calls == 0 {
		k.stands = false // from here on a call that begins waits for the next turn
	}
	k.mu.Unlock()
	var err error
	if calls == 0 {
		err = k.fence.Free()
	} else {
		err = k.fence.Hold(until)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stands = calls > 0 && err == nil && lapsed == k.lapsed
	switch {
	case err != nil && !k.told:
		k.told = true
		k.log.Error("if this worker is stopped now, its task processes run on beside those of other workers", zap.Error(err))
	case err == nil && calls > 0:
		k.told = false
	}
	return err
}

// check says whether what has taken held may go on. It asks the clock, since this program may have been stopped until now.
func (k *contact) check(held context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.look()
	return context.Cause(held)
}

// silence is how long ago the last question that got an answer was asked.
func (k *contact) silence() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now() - k.answered
}

// doubt says that a chunk which arrives now may have been handed on already.
func (k *contact) doubt() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.look()
	now := k.now()
	within := func(since, limit time.Duration) bool { return since > 0 && now-since < limit }
	return within(k.lapsed, openPoll) || within(k.halted, gpumux.HeartbeatTimeout) || now-k.answered > steady
}

// run asks until ctx ends.
func (k *contact) run(ctx context.Context) {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	// When the lease ends while an answer is awaited, calls end all the same.
	deadline := time.NewTimer(lease)
	defer deadline.Stop()
	answers := make(chan error)
	// What the fence does must not keep this from its turns.
	renew := make(chan struct{}, 1)
	var renewing sync.WaitGroup
	defer renewing.Wait()
	defer close(renew)
	renewing.Go(func() {
		for range renew {
			k.renew()
		}
	})
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
				select {
				case renew <- struct{}{}:
				default: // one that is still to come takes this answer too
				}
			}
		}
	}
}

// renew puts the fence off where calls run.
func (k *contact) renew() {
	k.mu.Lock()
	calls := k.calls
	k.mu.Unlock()
	if calls > 0 {
		_ = k.guard() // told; what runs goes on
	}
}

// turn notes that this program runs.
func (k *contact) turn() (now time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.look()
	k.awake = k.now()
	return k.awake
}

// answer takes in what came of a question that was asked at a time, and says how long calls may run on.
func (k *contact) answer(asked time.Duration, err error) (left time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.look()
	k.awake = k.now()
	left = asked + lease - k.awake
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

// unfenced is the error of a call that must not begin, because nobody would end its process if this program were stopped.
type unfenced struct{ err error }

func (e *unfenced) Error() string { return e.err.Error() }
func (e *unfenced) Unwrap() error { return e.err }

// look gives up what is held once its time is over, and begins anew; the caller holds the lock.
func (k *contact) look() {
	now := k.now()
	silent := now - k.answered
	if k.lost || silent <= lease {
		return
	}
	k.lost, k.lapsed = true, now
	k.stands = false // what begins after this waits until everything is ended that this deadline ends
	if stopped := now - k.awake; stopped < pause {
		k.log.Error("the Temporal server was out of reach; running items are given up, it hands them on", zap.Duration("silence", silent))
	} else {
		what := "; nothing ran on it"
		if k.calls > 0 {
			what = "; its task processes were ended because their items may run elsewhere"
		}
		k.log.Warn(fmt.Sprintf("this worker was stopped for %s%s", stopped.Round(time.Second), what))
	}
	k.lose(errSilence)
	k.ctx, k.lose = context.WithCancelCause(context.Background())
}

package slot

import (
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
)

// ErrLapsed is in the cause of a context whose call must not go on for a moment, because its items may be running elsewhere: the
// process is killed without grace, and what it has said does not count any more.
var ErrLapsed = errors.New("the time of the call is over")

// Fence ends the task processes of its slots where this program cannot: at a deadline, even while the program is stopped, and
// with their descendants when the program is gone. Another process, the warden, does it; one that ends, is stopped or does not
// answer is replaced. Its methods may be called from any goroutine, and what one fence ends is no other's. Close ends it. It needs
// Linux; elsewhere it does nothing.
type Fence struct {
	token  string
	number uint64
	keeper keeper
}

// NewFence makes the fence of the slots of one worker; the warden starts with the first of their processes. Log may be nil.
func NewFence(log *zap.Logger) *Fence {
	if log == nil {
		log = zap.NewNop()
	}
	f := &Fence{token: rand.Text(), number: workerNumber()}
	f.keeper.open(f.token, f.number, log)
	return f
}

// sharedFence is that of the slots that have none of their own.
var sharedFence = sync.OnceValue(func() *Fence { return NewFence(nil) })

// Hold sets the deadline, on the clock of Uptime, or puts it off. When the last one has passed it returns after everything that
// was to be ended has been, so that what starts then lives. An error says that there is no warden: what runs is not ended at the
// deadline before one could be started, which is tried by itself.
func (f *Fence) Hold(until time.Duration) error { return f.keeper.hold(until) }

// Free takes the deadline back: nothing runs that would have to be ended.
func (f *Fence) Free() error { return f.keeper.hold(0) }

// Lost is how many wardens ended or failed and had to be replaced.
func (f *Fence) Lost() int64 { return f.keeper.lost() }

// Lacks reports whether a warden was lost and none could take its place yet. It never waits.
func (f *Fence) Lacks() bool { return f.keeper.lacks() }

// Close ends the warden and returns when it is gone. The slots have been stopped; another process of theirs can not be started.
func (f *Fence) Close() { f.keeper.close() }

// guard makes the marks of a process that is to start, when there is a warden for it.
func (f *Fence) guard() (mark, error) {
	if err := f.keeper.ready(); err != nil {
		return mark{}, err
	}
	return mark{rand.Text(), processNumber(f.number), f.number}, nil
}

// unguarded is the error of a fence whose wardens end again and again.
type unguarded struct{ text string }

func (e *unguarded) Error() string { return e.text }

// unguardedHint is the next step.
const unguardedHint = "find out what ends it and stop that: a task that kills processes which are not its own, an operator, " +
	"the host's out-of-memory killer (dmesg)"

package slot

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
)

// Call is a call with what the worker adds to it.
type Call struct {
	calls.Call
	Work calls.Work
	// Memory overrides the slot's budget. Room and Env override the slot's for a process
	// that starts with the call. Zero keeps what the slot has.
	Memory, Room gpumux.Size
	Env          map[string]string
	// Held returns an error with calls.ErrLapsed in its chain once somebody else may run the
	// items. It is asked before a result counts and before a death is blamed on an item:
	// this program may have been stopped until a moment ago. Default: always held.
	Held func() error
	// Spare is called when the slot begins to have room for another call beside this one. It
	// may be nil.
	Spare func()
}

// call is a call that is under way, and who waits for its end.
type call struct {
	Call
	// ctx ends with the caller's, and when the slot stops.
	ctx context.Context
	// forget lets go of ctx. It reports whether ctx had not ended.
	forget   func() bool
	queue    *queue
	reply    chan error
	inFlight int
	// canceled is when the process was told to end its items; zero: it was not.
	canceled time.Time
	// err is why the call ends before its items do, once that is known.
	err error
	// over: its end was told. What its items come to now is lost.
	over bool
}

func (c *call) done(d calls.Done) {
	if !c.over {
		c.Work.Done(d)
	}
}

func (c *call) remaining() int64 { return int64(c.inFlight) + c.queue.remaining(c.Len) }

// lapsed reports whether somebody else may run the items, which ends the call.
func (c *call) lapsed() bool {
	if c.err == nil && c.Held != nil {
		c.err = c.Held()
	}
	return errors.Is(c.err, calls.ErrLapsed)
}

func (c *call) fail(fault gpumux.Fault) { c.err = &fault }

// ending is what a caller gets whose call ends with err, which others may share.
func (c *call) ending(err error) error {
	if c.err != nil {
		err = c.err
	}
	if fault, ok := err.(*gpumux.Fault); ok {
		return new(*fault)
	}
	if err != nil && c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	return err
}

const endless = math.MaxInt32

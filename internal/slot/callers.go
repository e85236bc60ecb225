package slot

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/process"
)

// callers has the calls under way in a job. They come and go one by one; the last one
// ends the job. Only the owner goroutine uses it, but for lose and wake.
type callers struct {
	slot *Slot
	list []*call
	// news has a token when items may be there, gone when the context of a call has ended.
	news, gone chan struct{}
	// ctx ends with the last context of a call.
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu sync.Mutex // guards what follows
	// alive is how many calls have a context that has not ended.
	alive int
}

func newCallers(slot *Slot, ctx context.Context) *callers {
	s := &callers{slot: slot, news: make(chan struct{}, 1), gone: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return s
}

// add starts to pull the items of a call, whose time limit is timeout unless it has its
// own. It reports false where the job ends at this moment.
func (s *callers) add(r request, timeout time.Duration) (*call, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, false
	}
	s.alive++
	c := &call{Call: r.call, reply: r.reply}
	c.Attempts = max(1, c.Attempts)
	if c.Timeout <= 0 {
		c.Timeout = timeout
	}
	ctx, cancel := context.WithCancelCause(r.ctx)
	stopped := context.AfterFunc(s.slot.life, func() { cancel(ErrStopped) })
	ended := context.AfterFunc(ctx, func() { s.lose(context.Cause(ctx)) })
	c.ctx, c.forget = ctx, func() bool {
		stopped()
		defer cancel(nil)
		return ended()
	}
	c.queue = newQueue(c, s.news)
	s.list = append(s.list, c)
	return c, true
}

func (s *callers) lose(cause error) {
	s.mu.Lock()
	s.alive--
	if s.alive == 0 {
		s.cancel(cause)
	}
	s.mu.Unlock()
	s.wake()
}

// wake makes the owner look at the contexts of calls.
func (s *callers) wake() { signal(s.gone) }

// signal leaves a token, unless one is there already.
func signal(tokens chan<- struct{}) {
	select {
	case tokens <- struct{}{}:
	default:
	}
}

// end ends a call. err is why, where that is not the end of its items.
func (s *callers) end(c *call, err error) {
	s.list = slices.DeleteFunc(s.list, func(other *call) bool { return other == c })
	if c.over = true; len(s.list) == 0 {
		s.slot.offers(0, 0) // before somebody knows that the slot is free
	}
	c.queue.end(c.ctx)
	err = c.ending(err)
	if c.forget() {
		s.mu.Lock()
		s.alive--
		s.mu.Unlock()
	}
	c.reply <- err
}

func (s *callers) endAll(err error) {
	for len(s.list) > 0 {
		s.end(s.list[0], err)
	}
	s.cancel(err)
}

// ready reports whether enough items of a call are there, or all that are to come, and
// asks for size of them. It ends the calls that have no more, and those whose callers are
// gone.
func (s *callers) ready(enough, size int) (ready bool) {
	for _, c := range slices.Clone(s.list) {
		known, n, err := c.queue.ready(enough, size)
		switch {
		case c.ctx.Err() != nil && s.ctx.Err() == nil:
			s.end(c, context.Cause(c.ctx))
		case known && n > 0:
			ready = true
		case known:
			s.end(c, err)
		}
	}
	return ready
}

// endFinished ends the calls of which nothing is in flight and nothing is to come, while
// others go on.
func (s *callers) endFinished() {
	for _, c := range slices.Clone(s.list) {
		if c.inFlight > 0 || !c.canceled.IsZero() {
			continue
		}
		if known, n, err := c.queue.ready(1, 1); known && n == 0 {
			s.end(c, err)
		}
	}
}

// held is an error once somebody else may run the items of a call.
func (s *callers) held() error {
	for _, c := range s.list {
		if c.lapsed() {
			return &lostError{"the time of a call was over"}
		}
	}
	return nil
}

func (s *callers) endLapsed() {
	for _, c := range slices.Clone(s.list) {
		if c.lapsed() {
			s.end(c, nil)
		}
	}
}

func (s *callers) remaining() (n int64) {
	for _, c := range s.list {
		n += c.remaining()
	}
	return n
}

// cut ends the calls before the job has: a killed process does not end. Those that it was
// killed for get that fault.
func (s *callers) cut(idle gpumux.Fault) {
	for _, c := range s.list {
		if c.ctx.Err() != nil {
			c.err = context.Cause(c.ctx)
		} else if charge, ok := errors.AsType[*gpumux.Fault](c.err); ok {
			charge.Message, charge.Hint = charge.Message+"; killed for it, the process has not ended", process.LingerHint
		} else {
			c.fail(idle)
		}
		c.queue.leave()
	}
	s.endAll(errors.New("the calls were ended before the job"))
}

package slot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers/slot/hygiene"
	"github.com/gpumux/gpumux/workers/slot/wire"
)

const (
	// idleAfter is how long a slot waits for its next call before it takes itself for idle.
	idleAfter = 50 * time.Millisecond
	// trimLimit is how long a trim may take before its process is taken for stuck.
	trimLimit = time.Minute
)

// errLost says that the process ended while no item ran.
var errLost = errors.New("the task process ended between two items")

// wantsTrim reports whether the process is to trim before it gets more items.
func (s *Slot) wantsTrim(p *session) bool {
	if !p.memory.draining && p.trims {
		held, _ := p.held()
		p.memory.draining = p.memory.tidy.Due(held, false)
	}
	return p.memory.draining
}

// between is called when no item is in flight: it lets the process trim if it is to and more items wait. again says that it
// has, and may be given them.
func (s *Slot) between(ctx context.Context, p *session, f *flow) (again bool, err error) {
	if !p.memory.draining {
		return false, nil
	}
	p.memory.draining = false
	if !f.gather(1, 1) || f.ended() || p.limit > 0 && p.ran >= p.limit {
		return false, nil
	}
	if err := s.trim(ctx, p); err != nil && !errors.Is(err, errLost) {
		return false, err
	}
	return true, nil
}

// rest is called when no call has come for a moment.
func (s *Slot) rest() {
	p := s.process
	if p == nil || !p.trims || !p.memory.tidy.Due(p.memory.Held(), true) {
		return
	}
	if s.trim(context.Background(), p) == nil && p.memory.why != "" {
		s.expire(p, false)
	}
}

// trim lets the process give back memory and waits for it. No item runs meanwhile. On an error the process is gone.
func (s *Slot) trim(ctx context.Context, p *session) error {
	before := p.memory.Measure()
	limit := time.NewTimer(trimLimit)
	defer limit.Stop()
	lost := func(why string) error {
		s.log.Warn("task process lost between two items", logPID.int(p.PID), logWhy.text(why))
		s.drop(why)
		return errLost
	}
	if !p.say(wire.Trim{Hard: p.memory.tidy.Hard()}) {
		return lost("it did not read what it was told before it was to trim")
	}
	for {
		select {
		case h := <-p.heard:
			switch m := h.message.(type) {
			case wire.ProgressReport, wire.Posted:
				continue
			case wire.Cap:
				if p.capped(s.o, m) {
					continue
				}
				return lost("it asked for more than it read while it trimmed")
			case wire.Trimmed:
				s.trimmed(p, before, m)
				return nil
			}
			if h.err == nil {
				return lost(fmt.Sprintf("a message out of turn while it trimmed: %T", h.message))
			}
			return lost("ended while it trimmed")
		case <-limit.C:
			return lost(fmt.Sprintf("a trim took longer than %s", trimLimit))
		case <-ctx.Done():
			s.abandon(ctx, "call ended: "+context.Cause(ctx).Error())
			return context.Cause(ctx)
		case <-s.quit:
			s.retire(false, "slot stops")
			return ErrStopped
		}
	}
}

func (s *Slot) trimmed(p *session, before int64, m wire.Trimmed) {
	after := p.memory.Measure()
	p.memory.held, p.memory.read = after, time.Now()
	took := duration(m.Busy)
	s.tally(func(st *Stats) {
		st.Trims++
		st.TrimTime += took
		st.Freed += max(0, before-after)
	})
	s.log.Debug("task process trimmed", logPID.int(p.PID),
		logWhy.text(fmt.Sprintf("%s before, %s after, in %s", gpumux.Size(before), gpumux.Size(after), took.Round(time.Microsecond))))
	if why, text := p.memory.tidy.Trimmed(before, after, took); why != "" {
		p.recycle(why, text)
	}
}

// ended takes in items that have ended, after busy seconds in all.
func (s *Slot) ended(p *session, items int, busy float64, peak int64) {
	s.tally(func(st *Stats) { st.Items += int64(items) })
	held, fresh := p.held()
	if !fresh {
		held = 0
	}
	p.memory.tidy.Ended(p.ran, duration(busy), held, peak)
	if text := p.memory.tidy.Leak; text != "" && !p.trims {
		p.recycle(hygiene.ForLeak, text)
	}
}

// expire ends a process that has run the items that it may.
func (s *Slot) expire(p *session, fresh bool) {
	why, text := p.memory.why, p.memory.text
	if why == "" {
		why, text = recycledItems, fmt.Sprintf("ran its %d items", p.ran)
	}
	if !fresh {
		s.recycled(p, why, text)
	}
	s.retire(true, text)
}

package slot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/logkey"
	"github.com/gpumux/gpumux/workers/slot/hygiene"
	"github.com/gpumux/gpumux/workers/slot/session"
)

// idleAfter is how long a slot waits for its next call before it takes itself for idle.
const idleAfter = 50 * time.Millisecond

// errLost says that the process ended while no item ran.
var errLost = errors.New("the task process ended between two items")

// wantsTrim reports whether the process is to trim before it gets more items.
func wantsTrim(p *occupant) bool {
	if !p.trimDue && p.trims && p.tidy.Budget > 0 {
		holding, _ := p.Memory.Lately()
		p.trimDue = p.tidy.Due(holding, false)
	}
	return p.trimDue
}

// between is called when no item is in flight: it lets the process trim if it is to and more items wait. again says that it
// has, and may be given them.
func (s *Slot) between(ctx context.Context, p *occupant, f *flow) (again bool, err error) {
	if !p.trimDue {
		return false, nil
	}
	p.trimDue = false
	if !f.gather(1, 1) || f.empty() || p.full() {
		return false, nil
	}
	if err := s.trim(ctx, p); err != nil && !errors.Is(err, errLost) {
		return false, err
	}
	return true, nil
}

// idle is called when no call has come for a moment.
func (s *Slot) idle() {
	p := s.process
	if p == nil || !p.trims || p.tidy.Budget == 0 {
		return
	}
	if holding, _ := p.Memory.Lately(); !p.tidy.Due(holding, true) {
		return
	}
	if s.trim(s.life, p) == nil && p.why != "" {
		s.expire(p, false)
	}
}

// trim lets the process give back memory and waits for it. No item runs meanwhile. On an error the process is gone.
func (s *Slot) trim(ctx context.Context, p *occupant) error {
	m, err := p.Trim(ctx)
	switch {
	case err == nil:
		s.trimmed(p, m)
		return nil
	case ctx.Err() != nil:
		s.abandon(ctx, "call ended: "+context.Cause(ctx).Error())
		return context.Cause(ctx)
	}
	s.log.Warn("task process lost between two items", zap.Int(logkey.PID, p.PID), zap.String(logkey.Why, err.Error()))
	s.kill(err.Error())
	return errLost
}

func (s *Slot) trimmed(p *occupant, m session.Trimmed) {
	took := duration(m.Busy)
	s.tally(func(st *Stats) {
		st.Trims++
		st.TrimTime += took
		st.Freed += max(0, m.Before.Held-m.After.Held)
	})
	s.log.Debug("task process trimmed", zap.Int(logkey.PID, p.PID), zap.String(logkey.Why, fmt.Sprintf("%s before, %s after, in %s",
		gpumux.Size(m.Before.Held), gpumux.Size(m.After.Held), took.Round(time.Microsecond))))
	if why, text := p.tidy.Trimmed(m.Before, m.After, took); why != "" {
		p.recycle(why, text)
	}
}

// account takes in items that have ended, after busy seconds in all.
func (s *Slot) account(p *occupant, items int, busy float64, peak int64) {
	s.tally(func(st *Stats) { st.Items += int64(items) })
	if p.tidy.Budget == 0 {
		return
	}
	holding, fresh := p.Memory.Lately()
	if !fresh {
		holding = hygiene.Holding{}
	}
	p.tidy.Ended(p.ran, items, duration(busy), holding, peak)
	if text := p.tidy.Leak; text != "" && !p.trims {
		p.recycle(hygiene.ForLeak, text)
	}
}

// expire ends a process that has run the items that it may.
func (s *Slot) expire(p *occupant, fresh bool) {
	why, text := p.why, p.text
	if why == "" {
		why, text = recycledItems, fmt.Sprintf("ran its %d items", p.ran)
	}
	if !fresh {
		s.recycled(p, why, text)
	}
	s.retire(true, text)
}

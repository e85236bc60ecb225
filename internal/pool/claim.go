package pool

import (
	"slices"
	"time"

	"go.uber.org/zap"
)

const (
	// A claim lapses after claimFor, as beside a call that hangs. Then nobody can claim the
	// devices for claimRest.
	claimFor  = time.Hour
	claimRest = time.Hour
)

// claim keeps other calls off a slot's devices until the owner has them to itself. A
// ledger has one at a time: such calls are rare.
type claim struct {
	seat  *Seat
	owner *waiter
	timer *time.Timer
}

// chooseGroup returns a slot whose devices no call uses, and takes all slots on them. If
// there is none, it claims the least used group. The caller holds the lock.
func (p *Pool) chooseGroup(w *waiter) *Seat {
	l := p.ledger
	var best *Seat
	if l.claim != nil && l.claim.owner == w && p.suits(l.claim.seat, w) {
		best = l.claim.seat
	} else {
		l.unclaim(w)
		best = p.leastUsed(w)
	}
	if best == nil {
		return nil
	}
	if l.load(best) > 0 {
		if l.claim == nil {
			c := &claim{seat: best, owner: w}
			c.timer = time.AfterFunc(claimFor, func() { p.update(func() { l.lapse(c) }) })
			l.claim = c
		}
		return nil
	}
	l.unclaim(w)
	for _, h := range l.sharing(best) {
		if h.busy = true; h != best {
			best.Beside = append(best.Beside, h)
		}
	}
	return best
}

// leastUsed is the first slot of the group with the fewest calls, among groups that the
// waiter may take or claim. The caller holds the lock.
func (p *Pool) leastUsed(w *waiter) (best *Seat) {
	l := p.ledger
	lowest := 0
	for i, h := range p.seats {
		if i > 0 && h.Group == p.seats[i-1].Group {
			continue // the slots of a group stand in a row
		}
		if !p.suits(h, w) || l.claimed(h) || l.yields(h, w) {
			continue
		}
		if load := l.load(h); (best == nil || load < lowest) && (load == 0 || !l.rests(h)) {
			best, lowest = h, load
		}
	}
	return best
}

// lapse ends a claim whose devices did not get free in time, as when a call hangs. The
// caller holds the lock.
func (l *Ledger) lapse(c *claim) {
	if l.claim != c {
		return
	}
	p := c.seat.pool
	l.claim = nil
	for _, d := range c.seat.Devices {
		l.resting[d] = time.Now().Add(claimRest)
	}
	time.AfterFunc(claimRest, func() { p.update(func() {}) })
	p.wait(c.owner)
	p.Log.Warn("a call that is to have a device to itself waits for others that do not end; the device is not kept for it for now",
		zap.String("pool", p.Name), zap.Strings("device", c.seat.Devices), zap.String("task", c.owner.Task), zap.Duration("kept", claimFor),
		zap.Duration("again", claimRest))
}

// unclaim ends the claim of a waiter, if it has one; the caller holds the lock.
func (l *Ledger) unclaim(w *waiter) {
	if l.claim != nil && l.claim.owner == w {
		l.claim.timer.Stop()
		l.claim = nil
	}
}

// rests reports whether a recent lapse forbids claims on a slot's devices, under the
// lock.
func (l *Ledger) rests(h *Seat) bool {
	return slices.ContainsFunc(h.Devices, func(d string) bool { return time.Now().Before(l.resting[d]) })
}

// claimed reports whether a claim keeps a slot's devices from others, under the lock.
func (l *Ledger) claimed(h *Seat) bool { return l.claim != nil && sharesDevices(l.claim.seat, h) }

func sharesDevices(a, b *Seat) bool {
	return slices.ContainsFunc(a.Devices, func(d string) bool { return slices.Contains(b.Devices, d) })
}

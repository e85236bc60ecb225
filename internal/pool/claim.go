package pool

import (
	"slices"
	"time"

	"go.uber.org/zap"
)

const (
	// claimFor is how long a claim keeps devices from others, twice as long at each further
	// one, up to claimMax. In between others have them for claimRest times as long.
	claimFor  = time.Minute
	claimMax  = time.Hour
	claimRest = 3
)

// claim keeps a slot's devices for a call that wants them whole, by the ledger's lock.
type claim struct {
	pool    *Pool
	devices []string
	owner   *waiter // nil once the claim has lapsed
	term    time.Duration
	paused  bool // others have the devices for now
	timer   *time.Timer
}

// chooseGroup picks a group whose devices no call uses and returns its first slot with
// the others beside it. Until there is one it claims the group with the fewest calls, or
// another after a lapse. The caller holds the lock.
func (p *Pool) chooseGroup(w *waiter) *Seat {
	l := p.ledger
	var best *Seat
	least := 0
	seen := map[string]bool{}
	for _, h := range p.seats {
		if seen[h.Group] {
			continue
		}
		seen[h.Group] = true
		claims, load := l.claimsOn(h), l.load(h)
		if len(claims) == 1 && claims[0].owner == w {
			if p.suits(h, w) {
				best, least = h, load
				break
			}
			l.unclaim(claims[0])
		}
		paused := slices.ContainsFunc(claims, func(c *claim) bool { return c.paused })
		// A lease may last for hours, so its devices are not waited for.
		if l.claimed(h) || !p.suits(h, w) || paused && load > 0 || l.leased(h) || len(claims) == 0 && l.yields(h, w) {
			continue
		}
		if best == nil || load < least {
			best, least = h, load
		}
	}
	if best == nil {
		return nil
	}
	if least > 0 {
		l.claim(best, w)
		return nil
	}
	for _, c := range l.claimsOn(best) {
		l.unclaim(c)
	}
	for _, h := range l.sharing(best) {
		if h.busy = true; h != best {
			best.Beside = append(best.Beside, h)
		}
	}
	return best
}

// claim keeps the devices of a slot for a waiter, under the lock.
func (l *Ledger) claim(h *Seat, w *waiter) {
	if l.claimed(h) {
		return
	}
	c := &claim{pool: h.pool, devices: h.Devices, owner: w, term: claimFor}
	for _, lapsed := range l.claimsOn(h) {
		c.term = max(c.term, min(2*lapsed.term, claimMax))
		l.unclaim(lapsed)
	}
	for _, d := range h.Devices {
		l.claims[d] = c
	}
	c.timer = time.AfterFunc(c.term, func() { l.lapse(c) })
}

// lapse gives others devices that did not get free in time, as beside a call that hangs.
func (l *Ledger) lapse(c *claim) {
	p := c.pool
	p.update(func() {
		if l.claims[c.devices[0]] != c {
			return
		}
		w, pause := c.owner, claimRest*c.term
		c.owner, c.paused = nil, true
		c.timer = time.AfterFunc(pause, func() { l.resume(c) })
		p.wait(w)
		p.Log.Warn("a call that is to have a device to itself waits for others that do not end; the device is not kept for it for now",
			zap.String("pool", p.Name), zap.Strings("device", c.devices), zap.String("task", w.Task), zap.Duration("kept", c.term),
			zap.Duration("again", pause))
	})
}

// resume lets calls claim devices again.
func (l *Ledger) resume(c *claim) {
	c.pool.update(func() {
		if l.claims[c.devices[0]] != c {
			return
		}
		c.paused = false
		l.grant()
		if c.owner == nil {
			l.unclaim(c)
		}
	})
}

// unclaim ends a claim; the caller holds the lock.
func (l *Ledger) unclaim(c *claim) {
	c.timer.Stop()
	for _, d := range c.devices {
		if l.claims[d] == c {
			delete(l.claims, d)
		}
	}
}

// unclaimAll ends the claims that match; the caller holds the lock.
func (l *Ledger) unclaimAll(match func(c *claim) bool) {
	for _, c := range l.claims {
		if match(c) {
			l.unclaim(c)
		}
	}
}

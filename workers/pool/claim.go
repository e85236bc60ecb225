package pool

import (
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux/internal/logkey"
)

const (
	// claimFor is how long a claim keeps a group from others. Each further claim lasts twice as long, up to claimMost, so long calls end
	// within one. In between others have the group for claimRest times as long.
	claimFor  = time.Minute
	claimMost = time.Hour
	claimRest = 3
)

// claim keeps a group from others for a call that wants it whole. The pool's lock guards it.
type claim struct {
	owner  *waiter // nil once the claim has lapsed
	term   time.Duration
	paused bool // others have the group for now
	timer  *time.Timer
}

// claimed reports whether a claim keeps a group from others; the caller holds the lock.
func (p *Pool) claimed(group string) bool {
	c := p.claims[group]
	return c != nil && c.owner != nil
}

// chooseGroup picks a group without calls and returns its first slot with all others beside it. Until there is one it claims the
// group with the fewest calls, or another one after a claim has lapsed. The caller holds the lock.
func (p *Pool) chooseGroup(w *waiter) *Handle {
	group, load := "", map[string]int{}
	for _, h := range p.handles {
		if h.busy {
			load[h.Group]++
		}
	}
	for _, h := range p.handles {
		c := p.claims[h.Group]
		if c != nil && c.owner == w {
			if p.suits(h, w) {
				group = h.Group
				break
			}
			p.unclaim(h.Group)
		}
		if p.claimed(h.Group) || !p.suits(h, w) || c != nil && c.paused && load[h.Group] > 0 {
			continue
		}
		if group == "" || load[h.Group] < load[group] {
			group = h.Group
		}
	}
	if group == "" {
		return nil
	}
	if load[group] > 0 {
		p.claim(group, w)
		return nil
	}
	p.unclaim(group)
	var first *Handle
	for _, h := range p.handles {
		if h.Group != group {
			continue
		}
		h.busy = true
		if first == nil {
			first = h
		} else {
			first.Beside = append(first.Beside, h)
		}
	}
	return first
}

// claim keeps a group for a waiter, unless somebody claims it; the caller holds the lock.
func (p *Pool) claim(group string, w *waiter) {
	c := p.claims[group]
	switch {
	case c == nil:
		c = &claim{term: claimFor}
		p.claims[group] = c
	case c.owner != nil:
		return
	default:
		c.term = min(2*c.term, claimMost)
	}
	c.owner = w
	c.timer = time.AfterFunc(c.term, func() { p.lapse(group, c) })
}

// lapse gives others a group that did not get free in time, as beside a call that hangs.
func (p *Pool) lapse(group string, c *claim) {
	p.update(func() {
		if p.claims[group] != c {
			return
		}
		w, pause := c.owner, claimRest*c.term
		c.owner, c.paused = nil, true
		c.timer = time.AfterFunc(pause, func() { p.resume(group, c) })
		p.waiting = append(slices.DeleteFunc(p.waiting, func(o *waiter) bool { return o == w }), w)
		p.Log.Warn("a call that is to have a device to itself waits for others that do not end; the device is not kept for it for now",
			zap.String(logkey.Pool, p.Name), zap.String(logkey.Device, group), zap.String(logkey.Task, w.Task), zap.Duration("kept", c.term),
			zap.Duration("again", pause))
	})
}

// resume lets calls claim a group again.
func (p *Pool) resume(group string, c *claim) {
	p.update(func() {
		if p.claims[group] != c {
			return
		}
		c.paused = false
		p.grant()
		if c.owner == nil && p.claims[group] == c {
			delete(p.claims, group)
		}
	})
}

// unclaim ends the claim on a group, if there is one; the caller holds the lock.
func (p *Pool) unclaim(group string) {
	if c := p.claims[group]; c != nil {
		c.timer.Stop()
		delete(p.claims, group)
	}
}

// unclaimAll ends a waiter's claims; the caller holds the lock.
func (p *Pool) unclaimAll(w *waiter) {
	for group, c := range p.claims {
		if c.owner == w {
			p.unclaim(group)
		}
	}
}

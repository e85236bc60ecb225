package pool

import (
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux/internal/logkey"
)

const (
	// claimFor is how long a group is kept from others for a call that wants it whole, and each further time twice as long up to
	// claimMost, so that long calls get to their end too. In between others have it for claimRest times as long.
	claimFor  = time.Minute
	claimMost = time.Hour
	claimRest = 3
)

// claim keeps a group from others for the sake of a call that wants it whole. The pool's lock guards it.
type claim struct {
	who   *waiter // nil once the claim has lapsed
	term  time.Duration
	rests bool // others have the group for now
	timer *time.Timer
}

// claimed reports whether a group is kept from others; the caller holds the lock.
func (p *Pool) claimed(group string) bool {
	c := p.claims[group]
	return c != nil && c.who != nil
}

// clear gives a waiter the first slot of a group in which nobody is left, and all others with it. Until then it claims the group
// with the fewest calls, and another one where a claim has lapsed. The caller holds the lock.
func (p *Pool) clear(w *waiter) *Handle {
	group, load := "", map[string]int{}
	for _, h := range p.handles {
		if h.busy {
			load[h.Group]++
		}
	}
	for _, h := range p.handles {
		c := p.claims[h.Group]
		if c != nil && c.who == w {
			if !p.off(h) {
				group = h.Group
				break
			}
			p.unclaim(h.Group)
		}
		if p.claimed(h.Group) || w.group != "" && h.Group != w.group || p.off(h) || c != nil && c.rests && load[h.Group] > 0 {
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

// claim keeps a group for a waiter, unless it has it already; the caller holds the lock.
func (p *Pool) claim(group string, w *waiter) {
	c := p.claims[group]
	switch {
	case c == nil:
		c = &claim{term: claimFor}
		p.claims[group] = c
	case c.who != nil:
		return
	default:
		c.term = min(2*c.term, claimMost)
	}
	c.who = w
	c.timer = time.AfterFunc(c.term, func() { p.lapse(group, c) })
}

// lapse lets others have a group that did not get free in time, as beside a call that hangs.
func (p *Pool) lapse(group string, c *claim) {
	p.mu.Lock()
	if p.claims[group] != c {
		p.mu.Unlock()
		return
	}
	w, rest := c.who, claimRest*c.term
	c.who, c.rests = nil, true
	c.timer = time.AfterFunc(rest, func() { p.resume(group, c) })
	p.waiting = append(slices.DeleteFunc(p.waiting, func(o *waiter) bool { return o == w }), w)
	p.Log.Warn("a call that is to have a device to itself waits for others that do not end; the device is not kept for it for now",
		zap.String(logkey.Pool, p.Name), zap.String(logkey.Device, group), zap.String(logkey.Task, w.task), zap.Duration("kept", c.term),
		zap.Duration("again", rest))
	p.grant()
	p.mu.Unlock()
	p.Changed()
}

// resume lets calls claim a group again.
func (p *Pool) resume(group string, c *claim) {
	p.mu.Lock()
	if p.claims[group] != c {
		p.mu.Unlock()
		return
	}
	c.rests = false
	p.grant()
	if c.who == nil && p.claims[group] == c {
		delete(p.claims, group)
	}
	p.mu.Unlock()
	p.Changed()
}

// unclaim ends the claim on a group, if there is one; the caller holds the lock.
func (p *Pool) unclaim(group string) {
	if c := p.claims[group]; c != nil {
		c.timer.Stop()
		delete(p.claims, group)
	}
}

// disclaim gives up a group that a waiter was to have whole; the caller holds the lock.
func (p *Pool) disclaim(w *waiter) {
	for group, c := range p.claims {
		if c.who == w {
			p.unclaim(group)
		}
	}
}

package pool

import (
	"context"

	"github.com/gpumux/gpumux/internal/slot"
)

// Resize sets how many calls each group runs at a time, and how many processes it keeps.
// Running calls finish; then surplus processes end to free their memory.
func (p *Pool) Resize(open int) {
	p.update(func() {
		p.open = open
		for _, h := range p.seats {
			if !h.busy && p.surplus(h) {
				p.evict(h)
			}
		}
	})
}

// surplus reports whether a slot's process is one too many, under the lock.
func (p *Pool) surplus(h *Seat) bool {
	if p.open >= len(p.seats) || p.stopped != nil || h.State() == slot.Vacant {
		return false
	}
	held := 0
	for _, other := range p.seats {
		if other.Group == h.Group && !other.evicted && (other.busy || other.State() != slot.Vacant) {
			held++
		}
	}
	return held > p.open
}

// evict ends the process of a free slot; the caller holds the lock.
func (p *Pool) evict(h *Seat) {
	h.busy, h.evicted, h.sharers = true, true, 1
	p.evicting.Go(func() {
		_ = h.Clear(context.Background()) // it fails when the slot was stopped, or when its process does not end
		p.Release(h)
	})
}

// Size is the number of slots of each group, cordoned or not.
func (p *Pool) Size() int {
	p.ledger.mu.Lock()
	defer p.ledger.mu.Unlock()
	n := 0
	for _, h := range p.seats {
		if h.Group == p.seats[0].Group {
			n++
		}
	}
	return min(n, p.open)
}

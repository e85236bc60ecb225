package pool

import (
	"context"
	"time"

	"github.com/gpumux/gpumux/internal/slot"
)

// Spare serves calls that wait to share a slot: one has room now.
func (p *Pool) Spare() { p.update(func() {}) }

// room is how many items of another call a slot's process could use beside those of the
// calls that have it; the caller holds the pool's lock.
func (p *Pool) room(h *Seat) int64 {
	if h.shared == "" || h.drains || h.evicted {
		return 0
	}
	sharers, room := h.Room()
	// Another number of calls: one that was let in is on its way.
	if sharers != h.sharers || room == 0 || p.stopped != nil || p.ledger.claimed(h) || p.isCordoned(h.Group) || p.surplus(h) {
		return 0
	}
	return room
}

// join picks a slot that a call can share: the one with most room. The caller holds the
// pool's lock.
func (p *Pool) join(w *waiter) (best *Seat) {
	if w.Shares == "" {
		return nil
	}
	largest := int64(0)
	for _, h := range p.seats {
		if h.shared != w.Shares || !p.suits(h, w) {
			continue
		}
		if room := p.room(h); room > largest {
			best, largest = h, room
		}
	}
	return best
}

// drain lets no further call share one of the slots, so that it becomes free for a waiter
// that cannot: the emptiest one of calls that have more slots than those like the waiter.
// As many slots drain as calls wait, some perhaps for waiters that have gone elsewhere.
// The caller holds the pool's lock.
func (p *Pool) drain(w *waiter, waiting int) {
	has, draining := map[string]int{}, 0
	for _, h := range p.seats {
		switch {
		case h.drains:
			draining++
		case h.busy:
			has[h.shared]++
		}
	}
	if draining >= waiting {
		return
	}
	var best *Seat
	largest := int64(0)
	for _, h := range p.seats {
		if room := p.room(h); room > largest && h.shared != w.Shares && has[h.shared] > has[w.Shares] && p.suits(h, w) {
			best, largest = h, room
		}
	}
	if best != nil {
		best.drains = true
	}
}

// take gives a slot to a waiter; the caller holds the pool's lock.
func (h *Seat) take(w *waiter) {
	h.busy, h.holder, h.shared, h.ending = true, w.Holder, w.Shares, time.Time{}
	h.sharers++
}

// leave ends a call's hold. The last one frees the slot and those beside it, and is told
// so. The caller holds the pool's lock.
func (h *Seat) leave() (freed bool) {
	if h.sharers--; h.sharers > 0 {
		return false
	}
	h.busy, h.evicted, h.drains, h.holder, h.shared, h.ending, h.sharers = false, false, false, "", "", time.Time{}, 0
	for _, other := range h.Beside {
		other.busy = false
	}
	h.Beside = nil
	return true
}

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

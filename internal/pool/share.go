package pool

import "time"

// Spare serves calls that wait to share a slot: one has room now.
func (p *Pool) Spare() { p.update(func() {}) }

// room is how many items of another call a slot's process could use beside those of the
// calls that have it; the caller holds the pool's lock.
func (p *Pool) room(h *Seat) int64 {
	if h.shared == "" || h.leased || h.evicted || h.drains || p.stopped != nil || p.ledger.claimed(h) || p.isCordoned(h.Group) ||
		p.surplus(h) {
		return 0
	}
	sharers, room := h.Room()
	if sharers != h.sharers { // one that was let in is on its way
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
	most := int64(0)
	for _, h := range p.seats {
		if h.shared != w.Shares || !p.suits(h, w) {
			continue
		}
		if room := p.room(h); room > most {
			best, most = h, room
		}
	}
	return best
}

// draining counts the slots that no further call may share; the caller holds the lock.
func (p *Pool) draining() (n int) {
	for _, h := range p.seats {
		if h.drains {
			n++
		}
	}
	return n
}

// drain lets no further call share one of the slots, so that it becomes free for a waiter
// that cannot: the emptiest. It reports whether there is one. The caller holds the pool's
// lock.
func (p *Pool) drain(w *waiter) bool {
	var best *Seat
	most, leased := int64(0), 0
	for _, h := range p.seats {
		if h.leased {
			leased++
		}
		if room := p.room(h); room > most && h.shared != w.Shares && p.suits(h, w) {
			best, most = h, room
		}
	}
	if best == nil || w.Lease && leased >= p.Leases {
		return false
	}
	best.drains = true
	return true
}

// take gives a slot to a waiter; the caller holds the pool's lock.
func (h *Seat) take(w *waiter) {
	h.busy, h.leased, h.holder, h.shared, h.ending = true, w.Lease, w.Holder, w.Shares, time.Time{}
	h.sharers++
}

// leave ends a call's hold. The last one frees the slot and those beside it, and is told
// so. The caller holds the pool's lock.
func (h *Seat) leave() (freed bool) {
	if h.sharers--; h.sharers > 0 {
		return false
	}
	h.busy, h.leased, h.evicted, h.drains, h.holder, h.shared, h.ending, h.sharers = false, false, false, false, "", "", time.Time{}, 0
	for _, other := range h.Beside {
		other.busy = false
	}
	h.Beside = nil
	return true
}

package pool

import "time"

// Busy is how many slots run calls: of a group, or of all, with all on devices that a call has to itself.
func (p *Pool) Busy(group string) (n int) {
	p.ledger.mu.Lock()
	defer p.ledger.mu.Unlock()
	for _, h := range p.handles {
		if h.busy && (group == "" || h.Group == group) {
			n++
		}
	}
	return n
}

// Leased is how many slots of a group, or of all, leases have.
func (p *Pool) Leased(group string) int {
	p.ledger.mu.Lock()
	defer p.ledger.mu.Unlock()
	return p.leasedSlots(group)
}

// leasedSlots is Leased for a caller with the lock.
func (p *Pool) leasedSlots(group string) (n int) {
	for _, h := range p.handles {
		if h.leased && (group == "" || h.Group == group) {
			n++
		}
	}
	return n
}

// Leasable is how many more slots of a group, or of all, leases may have now.
func (p *Pool) Leasable(group string) int {
	p.ledger.mu.Lock()
	defer p.ledger.mu.Unlock()
	n := 0
	for _, h := range p.handles {
		if !h.busy && !p.isCordoned(h.Group) && !p.ledger.claimed(h) && !p.ledger.wanted(h) && (group == "" || h.Group == group) {
			n++
		}
	}
	return max(0, min(n, p.Leases-p.leasedSlots("")))
}

// Slots is the number of slots that may be used, leased ones included: of a group, or of all.
func (p *Pool) Slots(group string) int {
	slots, _, _ := p.count(group)
	return slots
}

// Free is the number of slots of a group, or of all, that nobody uses and nobody waits for.
func (p *Pool) Free(group string) int {
	_, free, _ := p.count(group)
	return free
}

// Soon is how many more slots of a group, or of all, will be free soon.
func (p *Pool) Soon(group string) int {
	_, _, soon := p.count(group)
	return soon
}

// count is slots, free and soon.
func (p *Pool) count(group string) (slots, free, soon int) {
	p.ledger.mu.Lock()
	defer p.ledger.mu.Unlock()
	all, busy, leased, unused, claimed := map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}, map[string]bool{}
	ending := map[string]int{}
	for _, h := range p.handles {
		if p.isCordoned(h.Group) || group != "" && h.Group != group {
			continue
		}
		all[h.Group]++
		claimed[h.Group] = p.ledger.claimed(h)
		switch {
		case h.leased:
			leased[h.Group]++
		case !h.busy:
			unused[h.Group]++
		case !h.evicted:
			busy[h.Group]++
			if time.Since(h.ending) < endsWithin {
				ending[h.Group]++
			}
		}
	}
	for g, n := range all {
		n = min(n-leased[g], p.open)
		slots += n + leased[g]
		if !claimed[g] {
			now := min(unused[g], max(0, n-busy[g]))
			free += now
			soon += min(unused[g]+ending[g], max(0, n-busy[g]+ending[g])) - now
		}
	}
	return slots, free, soon
}

// Each calls f with every slot, in order, and with whose call it has, "" if nobody's.
func (p *Pool) Each(f func(h *Handle, holder string)) {
	p.ledger.mu.Lock()
	holders := make([]string, len(p.handles))
	for i, h := range p.handles {
		holders[i] = h.holder
	}
	p.ledger.mu.Unlock()
	for i, h := range p.handles {
		f(h, holders[i])
	}
}

package pool

import (
	"math"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Ledger is what a worker knows of its devices: which calls run on each, and who has one whole or waits for that. All pools of a worker
// share one, since they share devices. It gives a slot's devices all at once, so no two calls wait for each other's.
type Ledger struct {
	mu     sync.Mutex // guards all pools too
	pools  []*Pool
	claims map[string]*claim // by device
	// arrived counts the calls that have waited.
	arrived int
}

// NewLedger has no pools yet.
func NewLedger() *Ledger { return &Ledger{claims: map[string]*claim{}} }

// New makes a pool of slots, all of which may be used. Make all pools before the first call.
func (l *Ledger) New(name string, seats []*Seat) *Pool {
	p := &Pool{
		Name: name, Changed: func() {}, Log: zap.NewNop(), ledger: l, seats: seats, open: math.MaxInt, kept: math.MaxInt,
		cordoned: map[string]string{},
	}
	for _, h := range seats {
		h.pool = p
		if len(h.Devices) == 0 {
			h.Devices = []string{h.Group}
		}
	}
	l.pools = append(l.pools, p)
	return p
}

// New is a pool with a ledger of its own.
func New(name string, seats []*Seat) *Pool { return NewLedger().New(name, seats) }

// grant serves the waiting calls of all pools; the caller holds the lock.
func (l *Ledger) grant() {
	for _, p := range l.pools {
		p.grant()
	}
}

// sharing are the slots of all pools that have a device of this slot's, itself included; the caller holds the lock.
func (l *Ledger) sharing(h *Seat) (list []*Seat) {
	for _, p := range l.pools {
		for _, other := range p.seats {
			if slices.ContainsFunc(other.Devices, func(d string) bool { return slices.Contains(h.Devices, d) }) {
				list = append(list, other)
			}
		}
	}
	return list
}

// yields reports whether a call that wants a slot's devices whole lets an older ordinary call go first; the caller holds the lock.
func (l *Ledger) yields(h *Seat, w *waiter) bool {
	for _, other := range l.sharing(h) {
		if slices.ContainsFunc(other.pool.waiting, func(o *waiter) bool {
			return !o.answered && !o.Whole && o.number < w.number && other.pool.suits(other, o)
		}) {
			return true
		}
	}
	return false
}

// load is how many slots run calls on the devices of this one; the caller holds the lock.
func (l *Ledger) load(h *Seat) (n int) {
	for _, other := range l.sharing(h) {
		if other.busy {
			n++
		}
	}
	return n
}

// leased reports whether a lease has a slot on the devices of this one; the caller holds the lock.
func (l *Ledger) leased(h *Seat) bool {
	return slices.ContainsFunc(l.sharing(h), func(other *Seat) bool { return other.leased })
}

// wanted reports whether a call waits for the devices of a slot whole; the caller holds the lock.
func (l *Ledger) wanted(h *Seat) bool {
	return slices.ContainsFunc(l.sharing(h), func(other *Seat) bool {
		return slices.ContainsFunc(other.pool.waiting, func(o *waiter) bool { return o.Whole && !o.answered && other.pool.suits(other, o) })
	})
}

// claimsOn are the claims on devices of a slot; the caller holds the lock.
func (l *Ledger) claimsOn(h *Seat) (list []*claim) {
	for _, d := range h.Devices {
		if c := l.claims[d]; c != nil && !slices.Contains(list, c) {
			list = append(list, c)
		}
	}
	return list
}

// claimed reports whether a claim keeps the devices of a slot from others; the caller holds the lock.
func (l *Ledger) claimed(h *Seat) bool {
	return slices.ContainsFunc(h.Devices, func(d string) bool { return l.claims[d] != nil && l.claims[d].owner != nil })
}

// Busy is how many slots run calls: of a group, or of all, with all on devices that a call has to itself.
func (p *Pool) Busy(group string) (n int) {
	p.ledger.mu.Lock()
	defer p.ledger.mu.Unlock()
	for _, h := range p.seats {
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
	for _, h := range p.seats {
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
	for _, h := range p.seats {
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
	for _, h := range p.seats {
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
func (p *Pool) Each(f func(h *Seat, holder string)) {
	p.ledger.mu.Lock()
	holders := make([]string, len(p.seats))
	for i, h := range p.seats {
		holders[i] = h.holder
	}
	p.ledger.mu.Unlock()
	for i, h := range p.seats {
		f(h, holders[i])
	}
}

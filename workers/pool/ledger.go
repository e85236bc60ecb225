package pool

import (
	"math"
	"slices"
	"sync"

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
func (l *Ledger) New(name string, handles []*Handle) *Pool {
	p := &Pool{
		Name: name, Changed: func() {}, Log: zap.NewNop(), ledger: l, handles: handles, open: math.MaxInt, kept: math.MaxInt,
		cordoned: map[string]string{},
	}
	for _, h := range handles {
		h.pool = p
		if len(h.Devices) == 0 {
			h.Devices = []string{h.Group}
		}
	}
	l.pools = append(l.pools, p)
	return p
}

// New is a pool with a ledger of its own.
func New(name string, handles []*Handle) *Pool { return NewLedger().New(name, handles) }

// grant serves the waiting calls of all pools; the caller holds the lock.
func (l *Ledger) grant() {
	for _, p := range l.pools {
		p.grant()
	}
}

// sharing are the slots of all pools that have a device of this slot's, itself included; the caller holds the lock.
func (l *Ledger) sharing(h *Handle) (list []*Handle) {
	for _, p := range l.pools {
		for _, other := range p.handles {
			if slices.ContainsFunc(other.Devices, func(d string) bool { return slices.Contains(h.Devices, d) }) {
				list = append(list, other)
			}
		}
	}
	return list
}

// yields reports whether a call that wants a slot's devices whole lets an older ordinary call go first; the caller holds the lock.
func (l *Ledger) yields(h *Handle, w *waiter) bool {
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
func (l *Ledger) load(h *Handle) (n int) {
	for _, other := range l.sharing(h) {
		if other.busy {
			n++
		}
	}
	return n
}

// leased reports whether a lease has a slot on the devices of this one; the caller holds the lock.
func (l *Ledger) leased(h *Handle) bool {
	return slices.ContainsFunc(l.sharing(h), func(other *Handle) bool { return other.leased })
}

// wanted reports whether a call waits for the devices of a slot whole; the caller holds the lock.
func (l *Ledger) wanted(h *Handle) bool {
	return slices.ContainsFunc(l.sharing(h), func(other *Handle) bool {
		return slices.ContainsFunc(other.pool.waiting, func(o *waiter) bool { return o.Whole && !o.answered && other.pool.suits(other, o) })
	})
}

// claimsOn are the claims on devices of a slot; the caller holds the lock.
func (l *Ledger) claimsOn(h *Handle) (list []*claim) {
	for _, d := range h.Devices {
		if c := l.claims[d]; c != nil && !slices.Contains(list, c) {
			list = append(list, c)
		}
	}
	return list
}

// claimed reports whether a claim keeps the devices of a slot from others; the caller holds the lock.
func (l *Ledger) claimed(h *Handle) bool {
	return slices.ContainsFunc(h.Devices, func(d string) bool { return l.claims[d] != nil && l.claims[d].owner != nil })
}

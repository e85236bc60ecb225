package pool

import (
	"math"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Ledger records which calls use each device, shared or whole, and who waits for a whole
// one. All pools of a worker share one. It gives out all devices of a slot at once, so no
// two calls wait for each other.
type Ledger struct {
	mu    sync.Mutex // guards all pools too
	pools []*Pool
	// claim is the current one or nil. resting is until when a device cannot be claimed.
	claim   *claim
	resting map[string]time.Time
	// arrived counts the calls that have waited.
	arrived int
}

func NewLedger() *Ledger { return &Ledger{resting: map[string]time.Time{}} }

// New makes a pool of slots, all open. Make all pools before the first call.
func (l *Ledger) New(name string, seats []*Seat) *Pool {
	p := &Pool{
		Name: name, Changed: func() {}, Log: zap.NewNop(), ledger: l, seats: seats, open: math.MaxInt, cordoned: map[string]string{},
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

// grant serves the waiting calls of all pools; the caller holds the lock.
func (l *Ledger) grant() {
	for _, p := range l.pools {
		p.grant()
	}
}

// sharing are the slots of all pools on this one's devices, under the lock.
func (l *Ledger) sharing(h *Seat) (list []*Seat) {
	for _, p := range l.pools {
		for _, other := range p.seats {
			if sharesDevices(other, h) {
				list = append(list, other)
			}
		}
	}
	return list
}

// yields reports whether a call for whole devices must let an older call go first, under
// the lock.
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

// Load counts the slots of a pool by what they do now.
type Load struct {
	// Slots can be used. Busy ones run a call, or are held by a call with their devices to
	// itself.
	Slots, Busy int
	// Free ones can take a call now, Soon more of them soon.
	Free, Soon int
	// Joined are the calls in slots beside the first one of each. Spare ones have room for
	// another.
	Joined, Spare int
}

func (p *Pool) Load() (load Load) {
	type count struct {
		all, busy, unused, ending int
		claimed                   bool
	}
	p.ledger.mu.Lock()
	defer p.ledger.mu.Unlock()
	groups := map[string]*count{}
	for _, h := range p.seats {
		if h.busy {
			load.Busy++
			load.Joined += max(0, h.sharers-1)
		}
		if p.isCordoned(h.Group) {
			continue
		}
		if groups[h.Group] == nil {
			groups[h.Group] = &count{}
		}
		group := groups[h.Group]
		group.all, group.claimed = group.all+1, p.ledger.claimed(h)
		switch {
		case !h.busy:
			group.unused++
		case !h.evicted:
			group.busy++
			if time.Since(h.ending) < endsWithin {
				group.ending++
			}
			if p.room(h) > 0 {
				load.Spare++
			}
		}
	}
	for _, group := range groups {
		open := min(group.all, p.open)
		load.Slots += open
		if !group.claimed {
			now := min(group.unused, max(0, open-group.busy))
			load.Free += now
			load.Soon += min(group.unused+group.ending, max(0, open-group.busy+group.ending)) - now
		}
	}
	return load
}

// Each calls f with every slot, in order, and the holder of its call or "".
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

// Package pool decides which slot a call gets.
//
// It owns which calls hold a slot, which wait, which devices are cordoned or taken whole.
// It never decides how many slots there are. A Pool stops when Stop returns.
package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/slot"
)

// Slot is given to calls by a pool; *slot.Slot is one. Its holders call Run, which
// blocks: one at a time, or more as far as Room has room. The other methods may be called
// at any time, and Stop more than once.
type Slot interface {
	Run(ctx context.Context, task launch.Task, call slot.Call) error
	Room() (sharers int, room int64)
	Clear(ctx context.Context) error
	State() slot.State
	Task() string
	PID() int
	Stats() slot.Stats
	Stop(ctx context.Context) error
}

// ErrStopped ends calls when the worker stops.
var ErrStopped = errors.New("the worker stops")

// Pool gives the slots of one pool to calls in order of arrival.
type Pool struct {
	Name string
	// Changed is called without the lock when the answer of Load may have changed.
	Changed func()
	Log     *zap.Logger

	ledger   *Ledger // whose lock guards what follows
	seats    []*Seat
	open     int               // the most calls of a group at a time, and processes
	evicting sync.WaitGroup    // evictions under way
	waiting  []*waiter         // in order of arrival
	cordoned map[string]string // the reason, by group
	stopped  error
}

type Seat struct {
	Slot
	// Name is pool/number.
	Name string
	// Group names the devices. Devices default to the group's name.
	Group   string
	Devices []string
	pool    *Pool
	busy    bool
	sharers int       // how many calls have it
	shared  string    // as in Want, of all of them
	drains  bool      // a call that cannot share it waits, so no other one may
	ending  time.Time // when Ending was called
	holder  string    // as in Want, of the last call
	evicted bool      // the pool is ending its process
	// Faults counts what items failed with, and deaths of processes.
	Faults atomic.Int64
	peak   atomic.Int64
	// Memory is the budget of a call with the whole group. Limits returns the environment of
	// its process, and the bytes per device for its framework.
	Memory gpumux.Size
	Limits func() (env map[string]string, room gpumux.Size)
	// Beside are the other slots on its devices, of all pools, while one call has the
	// devices to itself.
	Beside []*Seat
}

func (h *Seat) ObservePeak(held int64) {
	for peak := h.peak.Load(); held > peak && !h.peak.CompareAndSwap(peak, held); peak = h.peak.Load() {
	}
}

// Peak is the most bytes that an item held.
func (h *Seat) Peak() int64 { return h.peak.Load() }

// Want says which slot a call needs.
type Want struct {
	Task string
	// Whole asks for a group's devices without any other call, of whatever pool.
	Whole bool
	// Avoid are groups to use only where no other is healthy.
	Avoid []string
	// Shares is the same for calls that may share a process. Default: with none.
	Shares string
	Holder string
}

type waiter struct {
	Want
	number   int         // in order of arrival over all pools
	answer   chan answer // buffered, so a grant never blocks
	answered bool
}

func (w *waiter) give(a answer) {
	w.answered = true
	w.answer <- a
}

type answer struct {
	seat *Seat
	err  error
}

// Acquire waits for a slot, preferably one that has loaded the task. To free a whole
// group, the pool keeps other calls off it for a while. Acquire fails when ctx ends, when
// the pool stops, and with device_lost when every suitable device is cordoned.
func (p *Pool) Acquire(ctx context.Context, want Want) (*Seat, error) {
	w := &waiter{Want: want, answer: make(chan answer, 1)}
	p.ledger.mu.Lock()
	p.wait(w)
	p.grant()
	p.ledger.mu.Unlock()
	select {
	case a := <-w.answer:
		p.Changed()
		return a.seat, a.err
	case <-ctx.Done():
	}
	p.update(func() {
		p.waiting = slices.DeleteFunc(p.waiting, func(o *waiter) bool { return o == w })
		select {
		case a := <-w.answer: // granted at the same moment
			if a.seat != nil {
				a.seat.leave()
			}
		default:
			p.ledger.unclaim(w)
		}
	})
	return nil, context.Cause(ctx)
}

// wait puts a waiter behind all others; the caller holds the lock.
func (p *Pool) wait(w *waiter) {
	p.ledger.arrived++
	w.number = p.ledger.arrived
	p.waiting = append(slices.DeleteFunc(p.waiting, func(o *waiter) bool { return o == w }), w)
}

// update changes the pool under the lock, serves all waiting calls, and calls Changed.
func (p *Pool) update(change func()) {
	p.ledger.mu.Lock()
	change()
	p.ledger.grant()
	p.ledger.mu.Unlock()
	for _, each := range p.ledger.pools {
		each.Changed()
	}
}

// Release ends a call's hold of a slot. The last one frees it.
func (p *Pool) Release(h *Seat) {
	p.update(func() {
		freed := append([]*Seat{h}, h.Beside...)
		if !h.leave() {
			return
		}
		for _, each := range freed {
			// A slot that still reclaims here has a killed process that does not end.
			owner := each.pool
			reclaims := each.State() == slot.Reclaiming || owner.isCordoned(each.Group) && each.State() != slot.Vacant
			if owner.stopped == nil && reclaims || each == h && p.surplus(h) {
				owner.evict(each)
			}
		}
	})
}

const endsWithin = 500 * time.Millisecond

// Ending records that the call in a slot ends soon, so the worker may fetch the next one.
func (p *Pool) Ending(h *Seat) {
	p.ledger.mu.Lock()
	if h.sharers == 1 {
		h.ending = time.Now()
	}
	p.ledger.mu.Unlock()
	p.Changed()
}

// grant serves the waiting calls that can be served; the caller holds the lock.
func (p *Pool) grant() {
	unserved := 0
	p.waiting = slices.DeleteFunc(p.waiting, func(w *waiter) bool {
		if err := p.refusal(); err != nil {
			p.ledger.unclaim(w)
			w.give(answer{err: err})
			return true
		}
		var h *Seat
		if w.Whole {
			h = p.chooseGroup(w)
		} else {
			h = cmp.Or(p.choose(w), p.join(w))
		}
		if h == nil {
			if !w.Whole {
				unserved++
				p.drain(w, unserved)
			}
			return false
		}
		h.take(w)
		w.give(answer{seat: h})
		return true
	})
}

// refusal is why no slot can serve calls now, or nil.
func (p *Pool) refusal() error {
	if p.stopped != nil {
		return p.stopped
	}
	why := ""
	for _, h := range p.seats {
		if !p.isCordoned(h.Group) {
			return nil
		}
		why = h.Group + " is cordoned: " + p.cordoned[h.Group]
	}
	return &gpumux.Fault{
		Kind: gpumux.FaultDeviceLost, Blameless: true, Op: "start", Message: fmt.Sprintf("pool %s has no healthy device: %s", p.Name, why),
		Hint: "look at gpumux gpus; the pool goes on by itself when the device works again, or has room",
	}
}

// choose picks a free slot. It prefers one whose process has the task, then one without a
// process. Ties go to the least busy group.
func (p *Pool) choose(w *waiter) *Seat {
	load := map[string]int{}
	for _, h := range p.seats {
		if h.busy && !h.evicted {
			load[h.Group]++
		}
	}
	var best *Seat
	var lowest [2]int
	for _, h := range p.seats {
		if h.busy || load[h.Group] >= p.open || p.ledger.claimed(h) || !p.suits(h, w) {
			continue
		}
		cost := [2]int{startCost(h, w.Task), load[h.Group]}
		if best == nil || slices.Compare(cost[:], lowest[:]) < 0 {
			best, lowest = h, cost
		}
	}
	return best
}

// suits reports whether a slot's devices may serve a call; the caller holds the lock.
func (p *Pool) suits(h *Seat, w *waiter) bool {
	return !p.isCordoned(h.Group) && (!slices.Contains(w.Avoid, h.Group) || !slices.ContainsFunc(p.seats, func(other *Seat) bool {
		return !p.isCordoned(other.Group) && !slices.Contains(w.Avoid, other.Group)
	}))
}

// startCost orders slots by the steps before they can run the task.
func startCost(h *Seat, task string) int {
	loaded := h.Task()
	switch state := h.State(); {
	case state == slot.Backoff:
		return 4
	case state == slot.Poisoned || state == slot.Reclaiming:
		return 3
	case state == slot.Vacant || loaded == "":
		return 1
	case loaded == task:
		return 0
	}
	return 2
}

// Cordon keeps new calls off a group of devices; running calls go on. Processes without a
// call end, so nothing holds the devices. It reports whether that is new.
func (p *Pool) Cordon(group, why string) (fresh bool) {
	p.update(func() {
		fresh = !p.isCordoned(group)
		p.cordoned[group] = why
		for _, h := range p.seats {
			if h.Group == group && !h.busy && h.State() != slot.Vacant && p.stopped == nil {
				p.evict(h)
			}
		}
	})
	return fresh
}

// Uncordon ends a cordon. It reports whether there was one.
func (p *Pool) Uncordon(group string) (was bool) {
	p.update(func() {
		was = p.isCordoned(group)
		delete(p.cordoned, group)
	})
	return was
}

// Cordoned reports whether new calls are kept off a group.
func (p *Pool) Cordoned(group string) bool {
	p.ledger.mu.Lock()
	defer p.ledger.mu.Unlock()
	return p.isCordoned(group)
}

// Cordons are the groups that new calls are kept off, with why.
func (p *Pool) Cordons() map[string]string {
	p.ledger.mu.Lock()
	defer p.ledger.mu.Unlock()
	return maps.Clone(p.cordoned)
}

// isCordoned is Cordoned for a caller with the lock.
func (p *Pool) isCordoned(group string) bool {
	_, cordoned := p.cordoned[group]
	return cordoned
}

// Stop refuses calls, and returns when all slots have stopped or ctx ends.
func (p *Pool) Stop(ctx context.Context) error {
	p.ledger.mu.Lock()
	p.stopped = ErrStopped
	p.grant()
	p.ledger.mu.Unlock()
	errs := make([]error, len(p.seats))
	var all sync.WaitGroup
	for i, h := range p.seats {
		all.Go(func() { errs[i] = h.Stop(ctx) })
	}
	all.Wait()
	evicted := make(chan struct{})
	go func() {
		defer close(evicted)
		p.evicting.Wait()
	}()
	select {
	case <-evicted:
	case <-ctx.Done():
		errs = append(errs, fmt.Errorf("stop pool %s: a process that was one too many has not ended: %w", p.Name, context.Cause(ctx)))
	}
	return errors.Join(errs...)
}

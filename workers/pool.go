package workers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers/slot"
)

// seat is what a pool hands out; *slot.Slot is one. Run blocks until the call is over and is called by one holder at a time;
// the others may be called at any time, and Stop more than once.
type seat interface {
	Run(ctx context.Context, call slot.Call) error
	Clear(ctx context.Context) error
	State() slot.State
	Task() string
	Stop(ctx context.Context) error
}

// errPoolStopped ends calls when the worker stops.
var errPoolStopped = errors.New("the worker stops")

// pool hands the slots of one pool to calls: calls that are pinned to a device first, since they can run nowhere else, then
// first come, first served. It never decides what Temporal is asked for, which supplier does, nor how many slots there are, which
// sizing does.
type pool struct {
	name string
	// changed is called without the lock whenever the answers of slots and free may have changed.
	changed func()
	log     *zap.Logger

	mu       sync.Mutex // guards what follows
	places   []*place
	open     int               // calls that a group runs at a time
	kept     int               // processes that a group keeps
	vacating sync.WaitGroup    // processes that end because they are too many
	waiting  []*waiter         // in order of arrival
	claims   map[string]*claim // of calls that want a whole group, by group
	cordoned map[string]string // why, by group
	stopped  error
}

// place is a seat in its pool.
type place struct {
	seat
	group   string
	busy    bool
	leaving bool   // its process ends because it is one too many
	warm    string // the task of which the last item finished here, if the process was not ended by the pool since
	// peak, where there is one, takes what items held.
	peak *peak
	// model is what the group's devices are.
	model string
	// memory is the budget of a call that has the group whole. env is the environment of a process that takes the allowance of each
	// device beside its data, in a slot or with the group whole.
	memory gpumux.Size
	env    func(allowance gpumux.Size, whole bool) map[string]string
	// beside are the other places of the group while a call has the group whole.
	beside []*place
}

// waiter is a call that waits for a place; group is empty when any will do. Whole asks for every place of one group.
type waiter struct {
	task  string
	group string
	whole bool
	turn  chan turn // buffered, so that a grant never blocks
}

type turn struct {
	place *place
	err   error
}

func newPool(name string, places []*place) *pool {
	return &pool{
		name: name, changed: func() {}, places: places, open: math.MaxInt, kept: math.MaxInt,
		cordoned: map[string]string{}, claims: map[string]*claim{}, log: zap.NewNop(),
	}
}

// take waits for a place: one whose process is loaded with the task if there is a choice. A whole group is kept from others
// from the moment it is asked for, so that it gets free however much work waits, but not for ever. It fails when ctx ends, when the
// pool stops, and with a device_lost fault when every device that would do is cordoned.
func (p *pool) take(ctx context.Context, task, group string, whole bool) (*place, error) {
	w := &waiter{task: task, group: group, whole: whole, turn: make(chan turn, 1)}
	p.mu.Lock()
	p.waiting = append(p.waiting, w)
	p.grant()
	p.mu.Unlock()
	select {
	case t := <-w.turn:
		p.changed()
		return t.place, t.err
	case <-ctx.Done():
	}
	p.mu.Lock()
	p.waiting = slices.DeleteFunc(p.waiting, func(o *waiter) bool { return o == w })
	select {
	case t := <-w.turn: // granted at the same moment
		if t.place != nil {
			t.place.release()
		}
	default:
		p.disclaim(w)
	}
	p.grant()
	p.mu.Unlock()
	p.changed()
	return nil, context.Cause(ctx)
}

// give takes a place back.
func (p *pool) give(pl *place) {
	p.mu.Lock()
	given := append([]*place{pl}, pl.beside...)
	pl.release()
	for _, each := range given {
		// One that still reclaims waits for a process that was killed and does not end.
		if p.stopped == nil && each.State() == slot.Reclaiming || each == pl && p.surplus(pl) {
			p.vacate(each)
		}
	}
	p.grant()
	p.mu.Unlock()
	p.changed()
}

// release makes a place free, and those beside it; the caller holds the pool's lock.
func (pl *place) release() {
	pl.busy, pl.leaving = false, false
	for _, other := range pl.beside {
		other.busy = false
	}
	pl.beside = nil
}

// busy is how many places run calls, with those that a call has to itself.
func (p *pool) busy() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pl := range p.places {
		if pl.busy {
			n++
		}
	}
	return n
}

// grant serves who can be served; the caller holds the lock.
func (p *pool) grant() {
	for _, pinned := range []bool{true, false} {
		p.waiting = slices.DeleteFunc(p.waiting, func(w *waiter) bool {
			if (w.group != "") != pinned {
				return false
			}
			if err := p.refusal(w.group); err != nil {
				p.disclaim(w)
				w.turn <- turn{err: err}
				return true
			}
			var pl *place
			if w.whole {
				pl = p.clear(w)
			} else {
				pl = p.best(w)
			}
			if pl == nil {
				return false
			}
			pl.busy = true
			w.turn <- turn{place: pl}
			return true
		})
	}
}

// refusal says why no place can ever do for now.
func (p *pool) refusal(group string) error {
	if p.stopped != nil {
		return p.stopped
	}
	why := ""
	for _, pl := range p.places {
		if group != "" && pl.group != group {
			continue
		}
		w, bad := p.cordoned[pl.group]
		if !bad {
			return nil
		}
		why = pl.group + " is cordoned: " + w
	}
	return &gpumux.Fault{
		Kind: gpumux.DeviceLost, Op: "start", Device: group, Message: fmt.Sprintf("pool %s has no healthy device: %s", p.name, why),
		Hint: "look at gpumux gpus; the pool goes on by itself when the device answers again",
	}
}

// best chooses among the free places: a process that has the task, then no process, then one with another task; among equals
// the device that does least, so that load spreads.
func (p *pool) best(w *waiter) *place {
	load := map[string]int{}
	for _, pl := range p.places {
		if pl.busy && !pl.leaving {
			load[pl.group]++
		}
	}
	var best *place
	var least [2]int
	for _, pl := range p.places {
		if pl.busy || load[pl.group] >= p.open || p.claimed(pl.group) || w.group != "" && pl.group != w.group || p.off(pl) {
			continue
		}
		cost := [2]int{effort(pl, w.task), load[pl.group]}
		if best == nil || slices.Compare(cost[:], least[:]) < 0 {
			best, least = pl, cost
		}
	}
	return best
}

// effort orders places by how much has to happen before they can run the task.
func effort(pl *place, task string) int {
	loaded := pl.Task()
	switch pl.State() {
	case slot.Backoff:
		return 4
	case slot.Poisoned, slot.Reclaiming:
		return 3
	case slot.Vacant:
		return 1
	}
	switch loaded {
	case task:
		return 0
	case "":
		return 1
	}
	return 2
}

// cordon keeps new calls off a group of devices; calls that run there go on. It reports whether that is new.
func (p *pool) cordon(group, why string) bool {
	p.mu.Lock()
	_, already := p.cordoned[group]
	p.cordoned[group] = why
	p.grant()
	p.mu.Unlock()
	p.changed()
	return !already
}

// restore ends a cordon. It reports whether there was one.
func (p *pool) restore(group string) bool {
	p.mu.Lock()
	_, was := p.cordoned[group]
	delete(p.cordoned, group)
	p.grant()
	p.mu.Unlock()
	p.changed()
	return was
}

func (p *pool) isCordoned(group string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, bad := p.cordoned[group]
	return bad
}

// off says whether a place is cordoned; the caller holds the lock.
func (p *pool) off(pl *place) bool {
	_, bad := p.cordoned[pl.group]
	return bad
}

// slots is the number of places that may be used: of a group, or of all.
func (p *pool) slots(group string) int {
	slots, _ := p.count(group)
	return slots
}

// free is the number of places of a group, or of all, that nobody uses and nobody waits for.
func (p *pool) free(group string) int {
	_, free := p.count(group)
	return free
}

// count is slots and free.
func (p *pool) count(group string) (slots, free int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all, busy, unused := map[string]int{}, map[string]int{}, map[string]int{}
	for _, pl := range p.places {
		if p.off(pl) || group != "" && pl.group != group {
			continue
		}
		all[pl.group]++
		switch {
		case !pl.busy:
			unused[pl.group]++
		case !pl.leaving:
			busy[pl.group]++
		}
	}
	for g, n := range all {
		n = min(n, p.open)
		slots += n
		if !p.claimed(g) {
			free += min(unused[g], max(0, n-busy[g]))
		}
	}
	return slots, free
}

// stop refuses waiting and later calls, and stops every slot at once. It returns when nothing of them is left or ctx ends.
func (p *pool) stop(ctx context.Context) error {
	p.mu.Lock()
	p.stopped = errPoolStopped
	p.grant()
	for group := range p.claims {
		p.unclaim(group)
	}
	p.mu.Unlock()
	errs := make([]error, len(p.places))
	var all sync.WaitGroup
	for i, pl := range p.places {
		all.Go(func() { errs[i] = pl.Stop(ctx) })
	}
	all.Wait()
	vacated := make(chan struct{})
	go func() {
		defer close(vacated)
		p.vacating.Wait()
	}()
	select {
	case <-vacated:
	case <-ctx.Done():
		errs = append(errs, fmt.Errorf("stop pool %s: a process that was one too many has not ended: %w", p.name, context.Cause(ctx)))
	}
	return errors.Join(errs...)
}

// peak is the most that an item of a slot held, in bytes.
type peak struct {
	mu   sync.Mutex
	most int64
}

func (p *peak) take(held int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.most = max(p.most, held)
}

// bytes is the most so far.
func (p *peak) bytes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most
}

package pool

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

// Slot is what a pool hands out; *slot.Slot is one. Run blocks until the call is over and is called by one holder at a time;
// the others may be called at any time, and Stop more than once.
type Slot interface {
	Run(ctx context.Context, call slot.Call) error
	Clear(ctx context.Context) error
	State() slot.State
	Task() string
	Stop(ctx context.Context) error
}

// ErrStopped ends calls when the worker stops.
var ErrStopped = errors.New("the worker stops")

// Pool hands the slots of one pool to calls: calls that are pinned to a device first, since they can run nowhere else, then
// first come, first served. It never decides what Temporal is asked for, nor how many slots there are.
type Pool struct {
	Name string
	// Changed is called without the lock whenever the answers of Slots and Free may have changed.
	Changed func()
	Log     *zap.Logger

	mu       sync.Mutex // guards what follows
	handles  []*Handle
	open     int               // calls that a group runs at a time
	kept     int               // processes that a group keeps
	vacating sync.WaitGroup    // processes that end because they are too many
	waiting  []*waiter         // in order of arrival
	claims   map[string]*claim // of calls that want a whole group, by group
	cordoned map[string]string // why, by group
	stopped  error
}

// Handle is a slot in its pool.
type Handle struct {
	Slot
	Group   string
	busy    bool
	leaving bool   // its process ends because it is one too many
	warm    string // the task of which the last item finished here, if the process was not ended by the pool since
	// Peak, where there is one, takes what items held.
	Peak *Peak
	// Model is what the group's devices are.
	Model string
	// Memory is the budget of a call that has the group whole. Limits are the environment of a process that takes the allowance of each
	// device beside its data, and the room that is left there for its framework, in a slot or with the group whole.
	Memory gpumux.Size
	Limits func(allowance gpumux.Size, whole bool) (env map[string]string, room gpumux.Size)
	// Beside are the other slots of the group while a call has the group whole.
	Beside []*Handle
}

// waiter is a call that waits for a slot; group is empty when any will do. Whole asks for every slot of one group.
type waiter struct {
	task  string
	group string
	whole bool
	turn  chan turn // buffered, so that a grant never blocks
}

type turn struct {
	handle *Handle
	err    error
}

// New makes a pool of slots, all of which may be used.
func New(name string, handles []*Handle) *Pool {
	return &Pool{
		Name: name, Changed: func() {}, handles: handles, open: math.MaxInt, kept: math.MaxInt,
		cordoned: map[string]string{}, claims: map[string]*claim{}, Log: zap.NewNop(),
	}
}

// Acquire waits for a slot: one whose process is loaded with the task if there is a choice. A whole group is kept from others
// from the moment it is asked for, so that it gets free however much work waits, but not for ever. It fails when ctx ends, when the
// pool stops, and with a device_lost fault when every device that would do is cordoned.
func (p *Pool) Acquire(ctx context.Context, task, group string, whole bool) (*Handle, error) {
	w := &waiter{task: task, group: group, whole: whole, turn: make(chan turn, 1)}
	p.mu.Lock()
	p.waiting = append(p.waiting, w)
	p.grant()
	p.mu.Unlock()
	select {
	case t := <-w.turn:
		p.Changed()
		return t.handle, t.err
	case <-ctx.Done():
	}
	p.mu.Lock()
	p.waiting = slices.DeleteFunc(p.waiting, func(o *waiter) bool { return o == w })
	select {
	case t := <-w.turn: // granted at the same moment
		if t.handle != nil {
			t.handle.release()
		}
	default:
		p.disclaim(w)
	}
	p.grant()
	p.mu.Unlock()
	p.Changed()
	return nil, context.Cause(ctx)
}

// Release takes a slot back.
func (p *Pool) Release(h *Handle) {
	p.mu.Lock()
	given := append([]*Handle{h}, h.Beside...)
	h.release()
	for _, each := range given {
		// One that still reclaims waits for a process that was killed and does not end.
		if p.stopped == nil && each.State() == slot.Reclaiming || each == h && p.surplus(h) {
			p.vacate(each)
		}
	}
	p.grant()
	p.mu.Unlock()
	p.Changed()
}

// release makes a slot free, and those beside it; the caller holds the pool's lock.
func (h *Handle) release() {
	h.busy, h.leaving = false, false
	for _, other := range h.Beside {
		other.busy = false
	}
	h.Beside = nil
}

// Busy is how many slots run calls, with those that a call has to itself.
func (p *Pool) Busy() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.handles {
		if h.busy {
			n++
		}
	}
	return n
}

// grant serves who can be served; the caller holds the lock.
func (p *Pool) grant() {
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
			var h *Handle
			if w.whole {
				h = p.clear(w)
			} else {
				h = p.best(w)
			}
			if h == nil {
				return false
			}
			h.busy = true
			w.turn <- turn{handle: h}
			return true
		})
	}
}

// refusal says why no slot can ever do for now.
func (p *Pool) refusal(group string) error {
	if p.stopped != nil {
		return p.stopped
	}
	why := ""
	for _, h := range p.handles {
		if group != "" && h.Group != group {
			continue
		}
		w, bad := p.cordoned[h.Group]
		if !bad {
			return nil
		}
		why = h.Group + " is cordoned: " + w
	}
	return &gpumux.Fault{
		Kind: gpumux.DeviceLost, Op: "start", Device: group, Message: fmt.Sprintf("pool %s has no healthy device: %s", p.Name, why),
		Hint: "look at gpumux gpus; the pool goes on by itself when the device answers again",
	}
}

// best chooses among the free slots: a process that has the task, then no process, then one with another task; among equals
// the device that does least, so that load spreads.
func (p *Pool) best(w *waiter) *Handle {
	load := map[string]int{}
	for _, h := range p.handles {
		if h.busy && !h.leaving {
			load[h.Group]++
		}
	}
	var best *Handle
	var least [2]int
	for _, h := range p.handles {
		if h.busy || load[h.Group] >= p.open || p.claimed(h.Group) || w.group != "" && h.Group != w.group || p.off(h) {
			continue
		}
		cost := [2]int{effort(h, w.task), load[h.Group]}
		if best == nil || slices.Compare(cost[:], least[:]) < 0 {
			best, least = h, cost
		}
	}
	return best
}

// effort orders slots by how much has to happen before they can run the task.
func effort(h *Handle, task string) int {
	loaded := h.Task()
	switch h.State() {
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

// Cordon keeps new calls off a group of devices; calls that run there go on. It reports whether that is new.
func (p *Pool) Cordon(group, why string) bool {
	p.mu.Lock()
	_, already := p.cordoned[group]
	p.cordoned[group] = why
	p.grant()
	p.mu.Unlock()
	p.Changed()
	return !already
}

// Uncordon ends a cordon. It reports whether there was one.
func (p *Pool) Uncordon(group string) bool {
	p.mu.Lock()
	_, was := p.cordoned[group]
	delete(p.cordoned, group)
	p.grant()
	p.mu.Unlock()
	p.Changed()
	return was
}

// Cordoned reports whether new calls are kept off a group.
func (p *Pool) Cordoned(group string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, bad := p.cordoned[group]
	return bad
}

// off reports whether a slot is cordoned; the caller holds the lock.
func (p *Pool) off(h *Handle) bool {
	_, bad := p.cordoned[h.Group]
	return bad
}

// Slots is the number of slots that may be used: of a group, or of all.
func (p *Pool) Slots(group string) int {
	slots, _ := p.count(group)
	return slots
}

// Free is the number of slots of a group, or of all, that nobody uses and nobody waits for.
func (p *Pool) Free(group string) int {
	_, free := p.count(group)
	return free
}

// count is slots and free.
func (p *Pool) count(group string) (slots, free int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all, busy, unused := map[string]int{}, map[string]int{}, map[string]int{}
	for _, h := range p.handles {
		if p.off(h) || group != "" && h.Group != group {
			continue
		}
		all[h.Group]++
		switch {
		case !h.busy:
			unused[h.Group]++
		case !h.leaving:
			busy[h.Group]++
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

// Stop refuses waiting and later calls, and stops every slot at once. It returns when nothing of them is left or ctx ends.
func (p *Pool) Stop(ctx context.Context) error {
	p.mu.Lock()
	p.stopped = ErrStopped
	p.grant()
	for group := range p.claims {
		p.unclaim(group)
	}
	p.mu.Unlock()
	errs := make([]error, len(p.handles))
	var all sync.WaitGroup
	for i, h := range p.handles {
		all.Go(func() { errs[i] = h.Stop(ctx) })
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
		errs = append(errs, fmt.Errorf("stop pool %s: a process that was one too many has not ended: %w", p.Name, context.Cause(ctx)))
	}
	return errors.Join(errs...)
}

// Peak is the most that an item of a slot held, in bytes.
type Peak struct {
	mu   sync.Mutex
	most int64
}

// Take takes in what one item held.
func (p *Peak) Take(held int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.most = max(p.most, held)
}

// Bytes is the most so far.
func (p *Peak) Bytes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most
}

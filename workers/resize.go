package workers

import (
	"context"

	"github.com/gpumux/gpumux/workers/slot"
)

// resize lets each group run so many calls at a time, and keep so many processes. More calls than that go on to their end; then
// a process that is one too many is ended, so that its memory is free.
func (p *pool) resize(open, kept int) {
	p.mu.Lock()
	p.open, p.kept = open, kept
	for _, pl := range p.places {
		if !pl.busy && p.surplus(pl) {
			p.vacate(pl)
		}
	}
	p.grant()
	p.mu.Unlock()
	p.changed()
}

// surplus says that a place has a process which its group is not to keep; the caller holds the lock.
func (p *pool) surplus(pl *place) bool {
	if p.kept >= len(p.places) || p.stopped != nil || pl.State() == slot.Vacant {
		return false
	}
	held := 0
	for _, other := range p.places {
		if other.group == pl.group && !other.leaving && (other.busy || other.State() != slot.Vacant) {
			held++
		}
	}
	return held > p.kept
}

// vacate ends the process of a free place; the caller holds the lock.
func (p *pool) vacate(pl *place) {
	pl.busy, pl.leaving, pl.warm = true, true, ""
	p.vacating.Go(func() {
		_ = pl.Clear(context.Background()) // it fails when the slot was stopped, or when its process does not end
		p.give(pl)
	})
}

// warmed notes that a place has finished an item of a task, isWarm says whether that was its last one.
func (p *pool) warmed(pl *place, task string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pl.warm = task
}

func (p *pool) isWarm(pl *place, task string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return pl.warm == task
}

// size is the number of slots of each group, cordoned or not.
func (p *pool) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, pl := range p.places {
		if pl.group == p.places[0].group {
			n++
		}
	}
	return min(n, p.open)
}

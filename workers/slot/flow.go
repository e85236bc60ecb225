package slot

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"slices"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/workers/slot/intake"
	"github.com/gpumux/gpumux/workers/slot/wire"
)

const (
	// frameItems bounds what is handed ahead to a process without a board, frameBytes to any; both let at least one item pass.
	frameItems = 64
	frameBytes = 1 << 20
)

// flying is an item that a process was given and has not finished.
type flying struct {
	gpumux.Item
	run   int64
	n     int
	tries int
	// sent is when its frame was.
	sent time.Time
}

// flow is one call on its way through the slot.
type flow struct {
	ctx    context.Context
	call   order
	fresh  bool
	intake *intake.Intake
	// over says that no more items come from the intake than wait already.
	over bool
	// finished is how many items have ended.
	finished int
	// least is how many items a process that has none left waits for, size how many it would take.
	least, size int

	// waiting are the items that no process was given, flight those that the present one was.
	waiting []flying
	flight  []flying
	// track is the memory in which flight moves on.
	track []flying
	// began is when the first item in flight did.
	began time.Time
}

// cut lets go of the call: it has no more items, and takes no more results.
func (f *flow) cut() {
	f.intake.Leave()
	f.over, f.waiting = true, nil
	f.call.Held, f.call.Keep, f.call.Done = nil, func(context.Context, int64, string, *os.File) error { return nil }, func(calls.Done) {}
}

// gather reports whether at least least items wait, or enough for a frame, or the last ones. It never waits: where they are still
// to come, it asks for them, n in all.
func (f *flow) gather(least, n int) (enough bool) {
	if f.over || len(f.waiting) >= least || f.full() {
		return true
	}
	enough, f.over = f.intake.Take(least-len(f.waiting), n-len(f.waiting), func(item gpumux.Item) {
		f.waiting = append(f.waiting, flying{Item: item})
	})
	return enough
}

// full reports whether the items that wait are as large as a frame.
func (f *flow) full() bool {
	bytes := 0
	for i := range f.waiting {
		bytes += len(f.waiting[i].Value)
	}
	return bytes >= frameBytes
}

// empty reports whether nothing is left to be sent.
func (f *flow) empty() bool { return f.over && len(f.waiting) == 0 }

// pop takes the first item that waits.
func (f *flow) pop() flying {
	item := f.waiting[0]
	f.waiting = slices.Delete(f.waiting, 0, 1)
	return item
}

// frame is the next one for a process that runs low. It is empty until half of its items are there or, where the process has none
// left, those of one micro-batch.
func (f *flow) frame(p *occupant) wire.Run {
	size, unit := whole(p.ahead(f.finished), p.batch), max(1, p.batch)
	if p.limit > 0 {
		size = min(size, p.limit-p.sent)
	}
	run := wire.Run{Run: p.runs + 1, Attempts: f.call.attempts()}
	if target := cmp.Or(f.call.Target, f.call.Task.Target()); p.lease != "" && target != p.target {
		run.Target, run.Task = target, f.call.Task.Name
	}
	if f.fresh {
		run.Attempts = 1
	}
	least := min(size, max(unit, size/2))
	if len(f.flight) == 0 {
		least = min(size, unit)
		f.least, f.size = least, size
	}
	if !f.gather(least, size) {
		return run
	}
	if there := len(f.waiting); there < size && there > unit && !f.over {
		size = there / unit * unit
	}
	now, bytes, most := time.Now(), 0, min(size, len(f.waiting))
	run.Items = make([]json.RawMessage, 0, most)
	f.room(most)
	for len(run.Items) < most && (bytes < frameBytes || len(run.Items) == 0) {
		item := f.waiting[len(run.Items)]
		item.run, item.n, item.sent = run.Run, len(run.Items), now
		f.flight = append(f.flight, item)
		run.Items = append(run.Items, item.Value)
		bytes += len(item.Value)
	}
	f.waiting = slices.Delete(f.waiting, 0, len(run.Items))
	if size > unit && len(f.waiting) == 0 && !f.over {
		// The next ones are on their way while these short ones run.
		f.intake.Ask(size)
	}
	return run
}

// room makes room for n more items in flight.
func (f *flow) room(n int) {
	if cap(f.flight)-len(f.flight) >= n {
		return
	}
	if all := len(f.flight) + n; cap(f.track) < all {
		f.track = make([]flying, 0, 2*all)
	}
	f.flight = append(f.track[:0], f.flight...)
}

// hungry reports whether the process runs low of items. One that has not read what it was given gets no more, however few items that is.
func (f *flow) hungry(p *occupant) bool {
	return len(f.flight) == 0 || len(f.flight) <= whole(p.given, p.batch)/2 && p.Unread() <= 1
}

// whole rounds a number of items up to whole micro-batches.
func whole(items, batch int) int {
	if batch == 0 {
		return items
	}
	return (items + batch - 1) / batch * batch
}

// current is the item whose turn it is, and since when; the zero time where there is none.
func (f *flow) current() (index int64, began time.Time) {
	switch {
	case len(f.flight) == 0:
		return 0, time.Time{}
	case f.call.Lease != "":
		return -1, f.began
	}
	return f.flight[0].Index, f.began
}

// due reports whether this is the item that the process has to answer next.
func (f *flow) due(run int64, n int) bool {
	return len(f.flight) > 0 && f.flight[0].run == run && f.flight[0].n == n
}

// blame notes the item whose turn it is in a fault.
func (f *flow) blame(fault *gpumux.Fault) {
	if len(f.flight) > 0 {
		fault.OfItem(f.flight[0].Value)
	}
}

// finish hands on the result of the first item in flight.
func (f *flow) finish(p *occupant, r gpumux.Result, busy float64, tries int, peak int64) {
	r.Index = f.flight[0].Index
	f.flight[0].Value = nil // it may be large
	f.flight = f.flight[1:]
	p.ran++
	f.finished++
	f.call.Done(calls.Done{Result: r, Busy: duration(busy), Peak: peak, Budget: int64(p.Memory.Budget)})
}

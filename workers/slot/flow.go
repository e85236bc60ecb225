package slot

import (
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers/slot/wire"
)

const (
	// frameItems bounds what is handed ahead to a process without a board, frameBytes to any; both let at least one item pass.
	frameItems = 64
	frameBytes = 1 << 20
)

// flying is an item that a process was given and has not finished.
type flying struct {
	Item
	run   int64
	n     int
	tries int
}

// flow is one call on its way through the slot.
type flow struct {
	call   Call
	fresh  bool
	next   func() (Item, error, bool)
	stop   func()
	held   []flying
	flight []flying
	began  time.Time
}

// cut lets go of the call: it has no more items, and takes no more results.
func (f *flow) cut() {
	f.stop()
	f.held = nil
	f.call.Held, f.call.Done = nil, func(Done) {}
}

// peek says whether there is an item to run, and pulls it off the call's items.
func (f *flow) peek() (bool, error) {
	if len(f.held) > 0 {
		return true, nil
	}
	item, err, ok := f.next()
	if err != nil || !ok {
		return false, err
	}
	f.held = append(f.held, flying{Item: item})
	return true, nil
}

// pop takes the item that peek found.
func (f *flow) pop() flying {
	item := f.held[0]
	if len(f.held) == 1 {
		// Mostly it is alone, and its place is used again.
		f.held = f.held[:0]
	} else {
		f.held = f.held[1:]
	}
	return item
}

// feed hands the process its next frame when it runs low.
func (f *flow) feed(p *process) error {
	size := whole(p.ahead(), p.batch)
	if p.limit > 0 {
		size = min(size, p.limit-p.sent)
	}
	run := wire.Run{Run: p.runs + 1, Attempts: f.call.attempts()}
	if f.fresh {
		run.Attempts = 1
	}
	bytes := 0
	for len(run.Items) < size && (bytes < frameBytes || len(run.Items) == 0) {
		more, err := f.peek()
		if err != nil {
			return err
		}
		if !more {
			break
		}
		item := f.pop()
		item.run, item.n = run.Run, len(run.Items)
		if len(f.flight) == 0 {
			f.began = time.Now()
		}
		f.flight = append(f.flight, item)
		run.Items = append(run.Items, item.Value)
		bytes += len(item.Value)
	}
	if len(run.Items) > 0 {
		p.runs++
		p.sent += len(run.Items)
		p.send <- run
	}
	return nil
}

// hungry says that the process runs low of items.
func (f *flow) hungry(p *process) bool {
	return len(f.flight) <= whole(p.given, p.batch)/2
}

// whole rounds a number of items up to whole micro-batches.
func whole(items, batch int) int {
	if batch == 0 {
		return items
	}
	return (items + batch - 1) / batch * batch
}

// due says whether this is the item that the process has to answer next.
func (f *flow) due(run int64, n int) bool {
	return len(f.flight) > 0 && f.flight[0].run == run && f.flight[0].n == n
}

// goOn lets a process go on that waits until its results were read.
func (f *flow) goOn(p *process, waits bool) {
	if waits {
		f.began = time.Now()
		p.send <- wire.Next{}
	}
}

// finish hands on the result of the first item in flight.
func (f *flow) finish(p *process, r gpumux.Result, busy float64, tries int, peak int64) {
	r.Index = f.flight[0].Index
	f.flight = f.flight[1:]
	p.ran++
	f.call.Done(Done{Result: r, Busy: duration(busy), Peak: peak, Budget: int64(p.budget)})
}

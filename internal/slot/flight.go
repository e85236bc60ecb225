package slot

import (
	"slices"
	"sort"
	"time"
)

// flight has the items of a job that its process has, in the order in which they were
// sent. The process answers them in that order, or each when it has ended.
type flight struct {
	items []item
	// memory is the array behind items, which each frame reuses.
	memory []item
	// concurrent is how many of them run at a time; 0: one after the other.
	concurrent int
	// begun is how many of the first ones have begun.
	begun int
	timed bool
}

// add takes up to n items of a call from its queue, which has them as take says.
func (f *flight) add(from *call, enough, n, unit int) []item {
	kept := append(f.memory[:0], f.items...)
	f.items = from.queue.take(kept, enough, n, unit, f.concurrent)
	f.memory = f.items
	added := f.items[len(kept):]
	from.inFlight += len(added)
	f.timed = f.timed || from.Timeout > 0
	return added
}

func (f *flight) drop(at int) {
	f.items[at].call.inFlight--
	f.items[at].Value, f.items[at].Arrays = nil, nil // they may be large
	if at < f.begun {
		f.begun--
	}
	if at == 0 {
		f.items = f.items[1:]
		return
	}
	f.items = slices.Delete(f.items, at, at+1)
}

// forget takes the items of cancelled runs out, and returns how many they were.
func (f *flight) forget(runs []int64) (forgotten int) {
	at, begun := 0, f.begun
	f.items = slices.DeleteFunc(f.items, func(one item) bool {
		over := !one.call.canceled.IsZero() && slices.Contains(runs, one.run)
		if over {
			one.call.inFlight--
			forgotten++
			if at < begun {
				f.begun--
			}
		}
		at++
		return over
	})
	return forgotten
}

func (f *flight) giveBack(owner *call) {
	var left []item
	for _, one := range f.items {
		if one.call == owner {
			left = append(left, one)
		}
	}
	owner.inFlight = 0
	owner.queue.back(left...)
}

func (f *flight) runs(owner *call) (runs []int64) {
	for _, one := range f.items {
		if one.call == owner && !slices.Contains(runs, one.run) {
			runs = append(runs, one.run)
		}
	}
	return runs
}

// find returns where an item is, or -1 if it has no turn. Runs and the items of each are
// sent in the order of their numbers.
func (f *flight) find(run int64, n int) int {
	at := 0
	if f.concurrent > 0 {
		at = sort.Search(len(f.items), func(i int) bool {
			one := &f.items[i]
			return one.run > run || one.run == run && one.n >= n
		})
	}
	if at == len(f.items) || f.items[at].run != run || f.items[at].n != n {
		return -1
	}
	return at
}

// together is how many of the items have a clock of their own.
func (f *flight) together() int { return min(len(f.items), max(1, f.concurrent)) }

// running are the items that may have begun: all of a micro-batch of so many have.
func (f *flight) running(batch int) []item {
	if f.concurrent > 0 {
		return f.items[:f.together()]
	}
	return f.items[:min(len(f.items), max(1, batch))]
}

// begin notes that the first items run since that time, where they have not begun before.
func (f *flight) begin(at time.Time) {
	for ; f.begun < f.together(); f.begun++ {
		f.items[f.begun].began = at
	}
}

// deadline is when the time of the first item is over; zero: never.
func (f *flight) deadline() (first time.Time) {
	if !f.timed {
		return first
	}
	for i := range f.items[:f.together()] {
		one := &f.items[i]
		if one.limit <= 0 {
			continue
		}
		if end := one.began.Add(one.limit); first.IsZero() || end.Before(first) {
			first = end
		}
	}
	return first
}

// suspects are the items that run and have a time limit, if that of one is over: it may
// wait for another, which blocks it.
func (f *flight) suspects() []item {
	running := f.items[:f.together()]
	if !slices.ContainsFunc(running, item.overdue) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(running), func(one item) bool { return one.limit <= 0 })
}

package slot

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// ErrLapsed is in the cause of a context whose call must not go on for a moment, because its items may be running elsewhere: the
// process is killed without grace, and what it has said does not count any more.
var ErrLapsed = errors.New("the time of the call is over")

// Fence ends every task process of this program when its deadline passes, even while the program itself is stopped, since
// another process waits for it. Its methods may be called from any goroutine. It needs Linux; elsewhere it does nothing.
type Fence struct{ _ byte } // of a size, so that two have two addresses

// fenceGrain is by how much the warden may be early: its clock counts hundredths of a second.
const fenceGrain = 100 * time.Millisecond

// fences are the deadlines in force. The warden knows the earliest, due; 0 is none.
var fences struct {
	mu    sync.Mutex
	until map[*Fence]time.Duration
	due   time.Duration
}

// Hold sets the deadline, on the clock of Uptime, or puts it off. When the last one has passed it returns after everything that
// was to be ended has been, so that what starts then lives.
func (f *Fence) Hold(until time.Duration) error {
	return refence(func(m map[*Fence]time.Duration) { m[f] = until })
}

// Free takes the deadline back: nothing runs that would have to be ended.
func (f *Fence) Free() error { return refence(func(m map[*Fence]time.Duration) { delete(m, f) }) }

func refence(change func(map[*Fence]time.Duration)) error {
	w, err := warden()
	if err != nil || w.line == nil {
		return err
	}
	fences.mu.Lock()
	defer fences.mu.Unlock()
	if fences.until == nil {
		fences.until = map[*Fence]time.Duration{}
	}
	if fences.due > 0 && Uptime() >= fences.due-fenceGrain {
		// What the others held was ended as well; they will hold again.
		clear(fences.until)
		if err := w.line.settle(); err != nil {
			return err
		}
		fences.due = 0
	}
	change(fences.until)
	due := time.Duration(0)
	if len(fences.until) > 0 {
		due = slices.Min(slices.Collect(maps.Values(fences.until)))
	}
	if due == fences.due {
		return nil
	}
	// What could not be told is still to be: until then the warden goes by the deadline before.
	if err := w.line.set(due, fences.due == 0); err != nil {
		return err
	}
	fences.due = due
	return nil
}

package session

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/wire"
)

// Watch follows the memory of process trees. Any goroutine may call its methods.
type Watch interface {
	// Follow follows the process on the device until Close. It calls over, once at most,
	// when the tree holds more than budget (0: any), or the most of all on a host that runs
	// out, or memory of another GPU. over must neither block nor call the watch.
	Follow(device string, pid int, budget gpumux.Size, over func(Over)) Watched
}

// Holding is the memory of a process, in bytes.
type Holding struct {
	// Held is all that is seen from outside; 0 means unknown.
	Held int64
	// Unused is the part that allocators keep.
	Unused int64
}

func (m Holding) Needed() int64 { return m.Held - m.Unused }

// Over is why the watch wants a process ended, in bytes.
type Over struct {
	// Held is the memory of its tree: of the host where Left is above 0, of the GPU Foreign
	// where that is given, else the part that counts for the budget.
	Held int64
	// Left is the host's free memory; 0 where the process passed its budget.
	Left int64
	// Foreign names a GPU that is not the slot's; empty where the process kept to its own.
	Foreign string
}

// Watched is a process that is followed. Sizes are in bytes; 0 means unknown. Only
// Measure may block, for seconds where a driver hangs, and then gives the last reading.
type Watched interface {
	// Busy says whether items run, which are looked at more often.
	Busy(busy bool)
	// Held is the tree's memory by a cheap reading; Measure takes a new one.
	Held() int64
	Measure() int64
	// Peak is the most that a reading has given since the last call.
	Peak() int64
	// Close ends it; over is not called any more.
	Close()
	// AwaitReturn waits, after Close, until the driver lists nothing more of the tree on a
	// GPU, for some seconds at most. Left is the memory still listed.
	AwaitReturn(ctx context.Context) (left int64)
}

type unwatched struct{}

func (unwatched) Busy(bool)      {}
func (unwatched) Held() int64    { return 0 }
func (unwatched) Measure() int64 { return 0 }
func (unwatched) Peak() int64    { return 0 }
func (unwatched) Close()         {}

func (unwatched) AwaitReturn(context.Context) int64 { return 0 }

// Memory follows the memory of one task process.
type Memory struct {
	Watched
	// Budget is its limit; 0: none.
	Budget gpumux.Size
	// over is why the watch ended the process; nil: it did not.
	over atomic.Pointer[Over]
	// Host: the budget limits memory of the host, not of a device.
	Host bool
	// last is when a peak was last asked for. tells: the process reports its own peaks.
	last  time.Time
	tells bool
	// allocators is the process's last report of them, highest the largest reading so far.
	allocators wire.Allocators
	highest    int64
	// held is the last reading, read its time.
	held int64
	read time.Time
}

func (m *Memory) watch(pid int, o Options, kill func()) {
	m.Watched, m.Budget, m.Host = unwatched{}, o.Memory, o.Device == "CPU"
	if o.Watch == nil {
		return
	}
	m.Watched = o.Watch.Follow(o.Device, pid, o.Memory, func(over Over) {
		m.over.Store(&over)
		kill()
	})
}

// Over is why the watch ended the process. It is zero if the watch did not.
func (m *Memory) Over() Over {
	if over := m.over.Load(); over != nil {
		return *over
	}
	return Over{}
}

const (
	// Items under peakItem share a peak, one every peakEvery.
	peakItem  = 5 * time.Millisecond
	peakEvery = 50 * time.Millisecond
)

// Report stores the process's report of its frameworks' allocators; nil changes nothing.
func (m *Memory) Report(a *wire.Allocators) {
	if a != nil {
		m.allocators = *a
	}
}

// PeakOf is the most that was needed for items that ended together, 0 for unknown. Where
// the process tells no peak, and for descendants, the watch's readings count.
func (m *Memory) PeakOf(now time.Time, busy time.Duration, reported int64) int64 {
	m.tells = m.tells || reported > 0
	if reported == 0 && (m.tells || busy < peakItem && now.Sub(m.last) < peakEvery) {
		return 0
	}
	m.last = now
	seen := m.Peak()
	if reported > 0 && !m.Host && m.allocators.Reserved > 0 {
		return m.withRest(reported, seen)
	}
	return max(reported, seen)
}

// withRest adds what the process holds beside its allocators. seen is the latest reading.
func (m *Memory) withRest(live, seen int64) int64 {
	held := m.Held()
	if held < m.allocators.Reserved { // they have grown since
		held = m.Measure()
	}
	if held == 0 { // nobody tells
		return 0
	}
	m.highest = max(m.highest, seen, held)
	// A reading from before the task emptied a cache would count that as beside it.
	return min(live+max(0, held-m.allocators.Reserved), max(live, m.highest))
}

// Lately returns what the process holds. It takes a fresh reading when the last one is
// more than a moment old.
func (m *Memory) Lately() (holding Holding, fresh bool) {
	if now := time.Now(); now.Sub(m.read) >= peakItem {
		m.held, m.read, fresh = m.Held(), now, true
	}
	return m.holding(m.held), fresh
}

// Now measures what is held. Lately returns the same until that is a moment old.
func (m *Memory) Now() Holding {
	m.held, m.read = m.Measure(), time.Now()
	return m.holding(m.held)
}

func (m *Memory) holding(held int64) Holding {
	a := m.allocators
	return Holding{Held: max(held, a.Reserved), Unused: a.Reserved - a.Live}
}

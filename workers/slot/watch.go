package slot

import (
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers/slot/diagnosis"
	"github.com/gpumux/gpumux/workers/slot/hygiene"
	"github.com/gpumux/gpumux/workers/slot/process"
)

// Watch follows the memory of task processes with their descendants. Its methods may be called from any goroutine.
type Watch interface {
	// Follow follows the process pid on the device from its start until Close. When its tree holds more than budget, or the most of
	// all on a host that runs out, over is called, once at most, on a goroutine of the watch, and must neither block nor call the
	// watch; a budget of 0 is never passed.
	Follow(device string, pid int, budget gpumux.Size, over func(Over)) Watched
}

// Over is why the watch wants a process ended, in bytes.
type Over struct {
	// Held is what its tree held: memory of the host where Left is above 0, else what counts for the budget.
	Held int64
	// Left is what the host had left, where that was too little; 0 where the process passed its budget.
	Left int64
}

// Watched is a process that is followed. Sizes are in bytes; 0 means unknown. No method blocks, but Measure may for a few
// seconds where a driver does not answer, and then gives the last reading.
type Watched interface {
	// Busy says whether items run, which are looked at more often.
	Busy(busy bool)
	// Held is what the tree holds by a reading that costs next to nothing; Measure takes a new one whatever it costs.
	Held() int64
	Measure() int64
	// Peak is the most that a reading has given since the last call.
	Peak() int64
	// Close ends it; over is not called any more.
	Close()
}

// unwatched stands in where there is no watch.
type unwatched struct{}

func (unwatched) Busy(bool)      {}
func (unwatched) Held() int64    { return 0 }
func (unwatched) Measure() int64 { return 0 }
func (unwatched) Peak() int64    { return 0 }
func (unwatched) Close()         {}

// memory is what is known of the memory of one task process.
type memory struct {
	Watched
	// over is what the process held when the watch ended it; 0: it did not.
	over atomic.Int64
	// left is what the host had left where the watch ended the process for that, else 0.
	left atomic.Int64
	// last is when a peak was last asked for. tells says that the process tells its own.
	last  time.Time
	tells bool
	// held is what the last reading gave, read when it was taken.
	held int64
	read time.Time
	tidy hygiene.Hygiene
	// draining says that a trim waits until no item is in flight.
	draining bool
	// why and text say why the process is to be recycled, once it is.
	why  hygiene.Reason
	text string
}

// recycle lets the process end when it has run the items that it was given.
func (p *session) recycle(why hygiene.Reason, text string) {
	if p.memory.why == "" {
		p.memory.why, p.memory.text, p.limit = why, text, p.sent
	}
}

// watch lets the watch follow the process that has just started.
func (p *session) watch(o Options) {
	p.memory.tidy.Budget = int64(o.Memory)
	p.memory.Watched = unwatched{}
	if o.Watch == nil {
		return
	}
	p.memory.Watched = o.Watch.Follow(o.Device, p.PID, o.Memory, func(over Over) {
		p.memory.left.Store(over.Left)
		p.memory.over.Store(over.Held)
		p.Signal(syscall.SIGKILL)
	})
}

const (
	// peakItem is how long an item takes for its peak to be its own; of shorter ones, one in peakEvery has the peak of all.
	peakItem  = 5 * time.Millisecond
	peakEvery = 50 * time.Millisecond
)

// peak is the most that was held for items which have just ended together, or 0 where that is not known. They took busy seconds. A
// process that tells its own peaks misses nothing of them; for others, and for descendants, there are the readings of the watch.
func (p *session) peak(now time.Time, busy float64, told int64) int64 {
	p.memory.tells = p.memory.tells || told > 0
	if told == 0 && (p.memory.tells || duration(busy) < peakItem && now.Sub(p.memory.last) < peakEvery) {
		return 0
	}
	p.memory.last = now
	return max(told, p.memory.Peak())
}

// held is what the process holds, read again when the last reading is not a moment old. Without a budget nobody needs to know.
func (p *session) held() (bytes int64, fresh bool) {
	if p.memory.tidy.Budget == 0 {
		return 0, false
	}
	if now := time.Now(); now.Sub(p.memory.read) >= peakItem {
		p.memory.held, p.memory.read, fresh = p.memory.Held(), now, true
	}
	return p.memory.held, fresh
}

// addMemory adds to the evidence what is known of the process's memory; before is memoryKills as the call began.
func (p *session) addMemory(e *diagnosis.Evidence, before int) {
	if over := p.memory.over.Load(); over > 0 {
		e.HostLeft = p.memory.left.Load()
		e.OverBudget, e.Peak = e.HostLeft == 0, max(over, e.Peak)
		return
	}
	killed(e, p.Kills(), process.MemoryKills()-before)
}

// killed adds to the evidence what the kernel killed, in the process's own cgroup and elsewhere in the worker's.
func killed(e *diagnosis.Evidence, own process.Kills, others int) {
	if own.Number > 0 {
		// The limit of the process's own cgroup is its budget. Killed for another one's, it may have kept to it.
		e.OOMKills += own.Number
		e.OverBudget, e.Peak = e.Exited && own.Own, max(own.Peak, e.Peak)
		return
	}
	e.OOMKills += max(0, others)
}

package workers

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.temporal.io/sdk/worker"

	"github.com/gpumux/gpumux/internal/pool"
)

// young is how long a poll counts as about to bring work: a queue with work answers
// sooner. An older poll is idle, and another queue may use the same free slot.
const young = 50 * time.Millisecond

// awake is how long after its last work a queue may have as many idle polls as slots are
// free. Otherwise it has one: the server holds each open, and when one brings work the
// others follow at once.
const awake = 10 * time.Second

// supplier decides when Temporal is asked for work: only while a slot is free. One serves
// the queues of a pool's calls and leases, which share the slots. (Temporal calls slot
// and permit what is here a slot and a poll.)
//
// A permit lasts as long as a poll, so a naive supplier lets one queue's idle polls keep
// all slots for a minute. Here an idle poll holds nothing: work takes the slot. A poll
// may start while fewer polls are young than slots are free, and a queue has at most as
// many idle polls as free slots, or one if it has had no work lately. A slot whose call
// ends soon counts as free, and so does one whose process has room for another call; work
// that stores its results has none any more. Work that comes while no slot is free waits
// in the worker, before any new poll, and goes back when it waits for long. Polls are
// granted in the order of asking.
type supplier struct {
	// load is the pool's; a wake follows every change.
	load func() pool.Load
	// leases is the queue of leases.
	leases string

	mu      sync.Mutex // guards what follows
	asking  []*ask     // in order
	polls   []*poll
	saves   int                  // how much of the work in progress needs no slot any more
	worked  map[string]time.Time // when work came last, by queue
	timer   *time.Timer
	drained chan struct{} // closed when no work is in progress; nil while nobody waits for that
}

// ask is a poller that waits for its permit.
type ask struct {
	queue string
	grant chan *worker.SlotPermit // buffered, so that a grant never blocks
}

// poll is an issued permit, in SlotPermit.UserData. used: work came of it, and is in
// progress.
type poll struct {
	queue string
	since time.Time
	used  bool
}

var _ worker.SlotSupplier = (*supplier)(nil)

func newSupplier(load func() pool.Load, leases string) *supplier {
	return &supplier{load: load, leases: leases, worked: map[string]time.Time{}}
}

// ReserveSlot waits until a poll of the queue may start.
func (s *supplier) ReserveSlot(ctx context.Context, info worker.SlotReservationInfo) (*worker.SlotPermit, error) {
	a := &ask{queue: info.TaskQueue(), grant: make(chan *worker.SlotPermit, 1)}
	s.mu.Lock()
	s.asking = append(s.asking, a)
	s.grant()
	s.mu.Unlock()
	select {
	case permit := <-a.grant:
		return permit, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asking = slices.DeleteFunc(s.asking, func(o *ask) bool { return o == a })
	select {
	case permit := <-a.grant: // granted at the same moment
		s.release(permit)
	default:
	}
	return nil, ctx.Err()
}

// TryReserveSlot refuses: work comes through the queues only.
func (s *supplier) TryReserveSlot(worker.SlotReservationInfo) *worker.SlotPermit { return nil }

// MarkSlotUsed takes a slot: work came of the poll.
func (s *supplier) MarkSlotUsed(info worker.SlotMarkUsedInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := info.Permit().UserData.(*poll); ok {
		p.used = true
		s.worked[p.queue] = time.Now()
		s.grant()
	}
}

// save notes that work needs no slot any more. Its end is told to saved.
func (s *supplier) save() (saved func()) {
	count := func(n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.saves += n
		s.grant()
	}
	count(1)
	return func() { count(-1) }
}

// ReleaseSlot ends a poll that brought nothing, or gives back the slot of one that did.
func (s *supplier) ReleaseSlot(info worker.SlotReleaseInfo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(info.Permit())
}

// MaxSlots is for metrics.
func (s *supplier) MaxSlots() int { return s.load().Slots }

// wake looks again after the pool changed.
func (s *supplier) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grant()
}

// drain waits until no work is in progress.
func (s *supplier) drain(ctx context.Context) error {
	s.mu.Lock()
	if !s.works() {
		s.mu.Unlock()
		return nil
	}
	empty := make(chan struct{})
	s.drained = empty
	s.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// works reports whether work is in progress. The caller holds the lock.
func (s *supplier) works() bool {
	return slices.ContainsFunc(s.polls, func(p *poll) bool { return p.used })
}

// release drops a permit. The caller holds the lock.
func (s *supplier) release(permit *worker.SlotPermit) {
	s.polls = slices.DeleteFunc(s.polls, func(p *poll) bool { return any(p) == permit.UserData })
	if s.drained != nil && !s.works() {
		close(s.drained)
		s.drained = nil
	}
	s.grant()
}

// grant issues every permit that may be issued now, and again when the oldest young poll
// has aged if an ask waits for that. The caller holds the lock.
func (s *supplier) grant() {
	now := time.Now()
	open := map[string]int{}     // by queue
	calls, leases := -s.saves, 0 // work that needs a slot; some leases may wait for theirs
	recent, aged := 0, now
	for _, p := range s.polls {
		switch {
		case p.used && p.queue == s.leases:
			leases++
		case p.used:
			calls++
		default:
			open[p.queue]++
			if now.Sub(p.since) < young {
				if p.since.Before(aged) {
					aged = p.since
				}
				recent++
			}
		}
	}
	all := s.load()
	// Other pools' calls may have slots of this one. A waiting lease takes none from a map.
	free := min(all.Slots+all.Joined-calls-all.Leased, all.Free) + all.Soon + all.Spare
	leasable := all.Leasable - max(0, leases-all.Leased)
	waits := false
	s.asking = slices.DeleteFunc(s.asking, func(a *ask) bool {
		room := free
		if a.queue == s.leases {
			room = leasable
		}
		limit := room
		if now.Sub(s.worked[a.queue]) > awake {
			room = min(room, 1)
		}
		if open[a.queue] >= room {
			return false
		}
		if recent >= limit {
			waits = true
			return false
		}
		p := &poll{queue: a.queue, since: now}
		s.polls = append(s.polls, p)
		open[a.queue]++
		recent++
		a.grant <- &worker.SlotPermit{UserData: p}
		return true
	})
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	if waits {
		s.timer = time.AfterFunc(max(aged.Add(young).Sub(now), time.Millisecond), s.wake)
	}
}

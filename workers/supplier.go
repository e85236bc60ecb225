package workers

import (
	"context"
	"sync"
	"time"

	"go.temporal.io/sdk/worker"

	"github.com/gpumux/gpumux/internal/pool"
)

// awake is how long after its last work a queue may have as many idle polls as slots are
// free. Otherwise it has one: the server holds each open, and when one brings work the
// others follow at once.
const awake = 10 * time.Second

// supplier decides when Temporal is asked for a pool's work: only while a slot is free.
// (Temporal calls slot and permit what is here a slot and a poll.)
//
// A permit lasts as long as a poll, but an idle poll holds no slot: it may start while
// fewer of them are open than slots are free. A slot whose call ends soon counts as free,
// and so does one whose process has room for another call; work that stores its results
// has none any more. Work that comes while no slot is free waits in the worker, before
// any new poll, and goes back when it waits for long.
type supplier struct {
	// load is the pool's; a wake follows every change.
	load func() pool.Load

	mu      sync.Mutex    // guards what follows
	changed chan struct{} // closed with the next change
	idle    int           // polls that have brought nothing yet
	working int           // polls whose work is in progress
	saving  int           // how much of that work needs no slot any more
	worked  time.Time     // when work came last
}

// poll is an issued permit, in SlotPermit.UserData. used: work came of it, and is in
// progress.
type poll struct{ used bool }

var _ worker.SlotSupplier = (*supplier)(nil)

func newSupplier(load func() pool.Load) *supplier {
	return &supplier{load: load, changed: make(chan struct{})}
}

func (s *supplier) ReserveSlot(ctx context.Context, _ worker.SlotReservationInfo) (*worker.SlotPermit, error) {
	err := s.await(ctx, func() bool {
		if s.idle >= s.limit() {
			return false
		}
		s.idle++
		return true
	})
	if err != nil {
		return nil, err
	}
	return &worker.SlotPermit{UserData: &poll{}}, nil
}

// await waits until ready, which is called with the lock, is true.
func (s *supplier) await(ctx context.Context, ready func() bool) error {
	for {
		s.mu.Lock()
		done, changed := ready(), s.changed
		s.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// limit is how many polls may be idle. The caller holds the lock.
func (s *supplier) limit() int {
	all := s.load()
	// Other pools' calls may have slots of this one.
	free := min(all.Slots+all.Joined-s.working+s.saving, all.Free) + all.Soon + all.Spare
	if time.Since(s.worked) > awake {
		return min(free, 1)
	}
	return free
}

// TryReserveSlot refuses: work comes through the queue only.
func (s *supplier) TryReserveSlot(worker.SlotReservationInfo) *worker.SlotPermit { return nil }

// MarkSlotUsed takes a slot: work came of the poll.
func (s *supplier) MarkSlotUsed(info worker.SlotMarkUsedInfo) {
	if p, ok := info.Permit().UserData.(*poll); ok && !p.used {
		s.update(func() {
			p.used = true
			s.idle--
			s.working++
			s.worked = time.Now()
		})
	}
}

// save notes that work needs no slot any more. Its end is told to saved.
func (s *supplier) save() (saved func()) {
	s.update(func() { s.saving++ })
	return func() { s.update(func() { s.saving-- }) }
}

// ReleaseSlot ends a poll that brought nothing, or gives back the slot of one that did.
func (s *supplier) ReleaseSlot(info worker.SlotReleaseInfo) {
	s.update(func() {
		if p, ok := info.Permit().UserData.(*poll); ok && p.used {
			s.working--
		} else {
			s.idle--
		}
	})
}

// MaxSlots is for metrics.
func (s *supplier) MaxSlots() int { return s.load().Slots }

// wake looks again after the pool changed.
func (s *supplier) wake() { s.update(func() {}) }

// update changes the counts, and lets all that wait look again.
func (s *supplier) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *supplier) drain(ctx context.Context) error {
	return s.await(ctx, func() bool { return s.working == 0 })
}

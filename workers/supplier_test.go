package workers

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/worker"

	"github.com/gpumux/gpumux/internal/pool"
)

// permitUse is what the SDK passes to a supplier. What the supplier never asks for is
// nil.
type permitUse struct {
	worker.SlotReleaseInfo
	permit *worker.SlotPermit
}

func (u permitUse) Permit() *worker.SlotPermit { return u.permit }

// fakeVacancies is a pool as the supplier sees it.
type fakeVacancies struct {
	mu sync.Mutex
	// soon are of those that are busy.
	all, busy, soon int
	// joined are calls beside the first one of a slot, spare slots with room for another.
	joined, spare int
}

func (f *fakeVacancies) set(all, busy, soon int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all, f.busy, f.soon = all, busy, soon
}

func (f *fakeVacancies) Load() pool.Load {
	f.mu.Lock()
	defer f.mu.Unlock()
	return pool.Load{Slots: f.all, Free: f.all - f.busy, Soon: f.soon, Joined: f.joined, Spare: f.spare}
}

func testSupplier(slots int) (*supplier, *fakeVacancies) {
	fake := &fakeVacancies{all: slots}
	s := newSupplier(fake.Load)
	s.worked = time.Now()
	return s, fake
}

// reserve asks in the background; the channel has the permit when it comes. It returns
// when the supplier has answered or waits.
func reserve(t *testing.T, s *supplier) <-chan *worker.SlotPermit {
	t.Helper()
	got := make(chan *worker.SlotPermit, 1)
	go func() {
		if permit, err := s.ReserveSlot(t.Context(), nil); err == nil {
			got <- permit
		}
	}()
	synctest.Wait()
	return got
}

// now waits for a permit; in a bubble that is seconds of its own clock.
func now(t *testing.T, got <-chan *worker.SlotPermit) *worker.SlotPermit {
	t.Helper()
	select {
	case permit := <-got:
		return permit
	case <-time.After(5 * time.Second):
		t.Fatal("no permit within 5 s")
		return nil
	}
}

func granted(got <-chan *worker.SlotPermit) bool { return len(got) > 0 }

func (s *supplier) mark(p *worker.SlotPermit) { s.MarkSlotUsed(permitUse{permit: p}) }
func (s *supplier) done(p *worker.SlotPermit) { s.ReleaseSlot(permitUse{permit: p}) }

// A busy slot whose process has room for another call is worth a poll, until a call that
// comes of it has joined.
func TestSupplier_ASlotWithRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fake := testSupplier(2)
		fake.busy = 2
		s.working = 2
		first := reserve(t, s)
		synctest.Wait()
		require.False(t, granted(first))
		fake.spare = 1
		s.wake()
		s.mark(now(t, first))
		second := reserve(t, s)
		synctest.Wait()
		require.False(t, granted(second), "the room is for what has come")
		fake.joined, fake.spare = 1, 0
		s.wake()
		synctest.Wait()
		require.False(t, granted(second), "there is none left")
		fake.spare = 1
		s.wake()
		now(t, second)
	})
}

// A queue without work has one poll open. Work on it lets all slots ask.
func TestSupplier_AQuietQueueHasOnePoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fake := testSupplier(4)
		time.Sleep(awake + time.Second)
		first := now(t, reserve(t, s))
		second, third := reserve(t, s), reserve(t, s)
		time.Sleep(time.Second)
		require.False(t, granted(second) || granted(third))
		start := time.Now()
		fake.set(4, 1, 0)
		s.mark(first)
		now(t, second)
		now(t, third)
		require.Zero(t, time.Since(start))
	})
}

func TestSupplier_AnIdleWorkerPollsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := testSupplier(4)
		start := time.Now()
		for range 4 {
			now(t, reserve(t, s))
		}
		require.Zero(t, time.Since(start))
		require.Equal(t, 4, s.MaxSlots())
		require.Nil(t, s.TryReserveSlot(nil))
	})
}

// The next work comes while the last items of a call run, and no further one until there
// is a slot for that, too.
func TestSupplier_FetchesAheadOfTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, fake := testSupplier(2)
		set := func(busy, soon int) {
			fake.set(1, busy, soon)
			s.wake()
			synctest.Wait()
		}
		set(0, 0)
		first := now(t, reserve(t, s))
		s.mark(first)
		set(1, 0)
		next := reserve(t, s)
		require.False(t, granted(next))
		set(1, 1)
		require.True(t, granted(next))
		second, then := now(t, next), reserve(t, s)
		s.mark(second)
		synctest.Wait()
		require.False(t, granted(then), "the slot is promised")
		set(1, 0) // the second has the slot
		saved := s.save()
		synctest.Wait()
		require.False(t, granted(then))
		set(1, 1)
		require.True(t, granted(then), "however long the first takes to store its results")
		saved()
		for _, work := range []*worker.SlotPermit{first, second, now(t, then)} {
			s.done(work)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		require.Zero(t, s.idle+s.working+s.saving)
	})
}

func TestSupplier_CancelledAskIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := testSupplier(2)
		one, two := now(t, reserve(t, s)), now(t, reserve(t, s))
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() { _, err := s.ReserveSlot(ctx, nil); failed <- err }()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-failed, context.Canceled)
		s.done(one)
		s.done(two)
		s.mu.Lock()
		defer s.mu.Unlock()
		require.Zero(t, s.idle)
	})
}

func TestSupplier_DrainWaitsForWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := testSupplier(2)
		require.NoError(t, s.drain(t.Context()))
		work := now(t, reserve(t, s))
		require.NoError(t, s.drain(t.Context()), "an idle poll is no work")
		s.mark(work)
		s.mark(work) // twice changes nothing
		drained := make(chan error, 1)
		go func() { drained <- s.drain(t.Context()) }()
		synctest.Wait()
		require.Empty(t, drained)
		s.done(work)
		require.NoError(t, <-drained)
		short, cancel := context.WithCancel(t.Context())
		cancel()
		s.mark(now(t, reserve(t, s)))
		require.ErrorIs(t, s.drain(short), context.Canceled)
	})
}

// Pollers over one pool, with work that comes at random: at no time runs more than the
// slots hold and the open polls can have brought, the slots themselves are never
// overbooked, and at the end nothing is left over.
func TestSupplier_NeverMoreThanItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perDevice, pollers = 2, 6
		p, _, _ := testPool(perDevice, "A", "B")
		s := newSupplier(p.Load)
		p.Changed = s.wake
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		var begun, held, highest, mostHeld, finished atomic.Int32
		raise := func(to *atomic.Int32, n int32) {
			for old := to.Load(); n > old && !to.CompareAndSwap(old, n); old = to.Load() {
			}
		}
		var all sync.WaitGroup
		for range pollers {
			all.Go(func() {
				for {
					permit, err := s.ReserveSlot(ctx, nil)
					if err != nil {
						return
					}
					time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond) // the server answers
					if rand.IntN(4) == 0 {                                     // with nothing
						s.done(permit)
						continue
					}
					all.Go(func() { // the SDK polls on while work runs
						s.mark(permit)
						defer s.done(permit)
						raise(&highest, begun.Add(1))
						defer begun.Add(-1)
						pl, err := p.Acquire(context.WithoutCancel(ctx), pool.Want{Task: "x"})
						if err != nil {
							t.Error(err)
							return
						}
						raise(&mostHeld, held.Add(1))
						time.Sleep(time.Duration(rand.IntN(4)) * time.Millisecond)
						held.Add(-1)
						p.Release(pl)
						finished.Add(1)
					})
				}
			})
		}
		all.Wait()
		slots := int32(2 * perDevice)
		require.LessOrEqual(t, mostHeld.Load(), slots)
		// As many polls may be open as there are slots when the last slot is taken.
		require.LessOrEqual(t, highest.Load(), slots+slots)
		require.Greater(t, finished.Load(), int32(200))
		require.Equal(t, int(slots), p.Load().Free)
		s.mu.Lock()
		defer s.mu.Unlock()
		require.Zero(t, s.idle+s.working)
	})
}

package workers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpumux/gpumux/workers/slot/slottest"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers/slot"
)

// fakePool has n slots on each device.
func fakePool(n int, devices ...string) (*pool, []*slottest.Slot) {
	var places []*place
	var fakes []*slottest.Slot
	for _, d := range devices {
		for range n {
			f := slottest.New()
			fakes = append(fakes, f)
			places = append(places, &place{seat: f, group: d})
		}
	}
	return newPool("gpu", places), fakes
}

// queued waits until n calls wait in the pool.
func queued(t *testing.T, p *pool, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.waiting) == n
	}, time.Minute, time.Millisecond)
}

func mustTake(t *testing.T, p *pool, task, group string) *place {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	pl, err := p.take(ctx, task, group, false)
	require.NoError(t, err)
	return pl
}

func TestPool_FirstComeFirstServedAndPinnedFirst(t *testing.T) {
	p, _ := fakePool(1, "A")
	held := mustTake(t, p, "x", "")
	order := make(chan string, 8)
	for i, group := range []string{"", "", "A", "", "A"} {
		name := fmt.Sprintf("%d%s", i, group)
		go func() {
			pl, err := p.take(t.Context(), "x", group, false)
			if err == nil {
				order <- name
				p.give(pl)
			}
		}()
		queued(t, p, i+1)
	}
	p.give(held)
	var got []string
	for range 5 {
		got = append(got, <-order)
	}
	require.Equal(t, []string{"2A", "4A", "0", "1", "3"}, got)
}

func TestPool_PinnedCallGetsOnlyItsDevice(t *testing.T) {
	p, _ := fakePool(1, "A", "B")
	held := mustTake(t, p, "x", "B")
	require.Equal(t, "B", held.group)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("no longer wanted")
	done := make(chan error, 1)
	go func() { _, err := p.take(ctx, "x", "B", false); done <- err }()
	queued(t, p, 1) // although A is free
	// A call for any device passes it.
	require.Equal(t, "A", mustTake(t, p, "x", "").group)
	cancel(why)
	require.ErrorIs(t, <-done, why)
	queued(t, p, 0)
	p.give(held)
	require.Equal(t, "B", mustTake(t, p, "x", "B").group)
}

func TestPool_PrefersALoadedProcess(t *testing.T) {
	p, fakes := fakePool(2, "A", "B")
	fakes[0].Load("other", slot.Ready)
	fakes[1].Load("mine", slot.Backoff)
	fakes[2].Load("", slot.Vacant)
	fakes[3].Load("mine", slot.Ready)
	var got []seat
	for range 4 {
		got = append(got, mustTake(t, p, "mine", "").seat)
	}
	// The process with the task, then no process, then another task's, then one that waits after a failed start.
	require.Equal(t, []seat{fakes[3], fakes[2], fakes[0], fakes[1]}, got)
}

func TestPool_SpreadsLoadOverDevices(t *testing.T) {
	p, _ := fakePool(2, "A", "B", "C")
	var got []string
	for range 6 {
		got = append(got, mustTake(t, p, "x", "").group)
	}
	require.Equal(t, []string{"A", "B", "C", "A", "B", "C"}, got)
}

func TestPool_CordonMovesWorkAndRestoreTakesItBack(t *testing.T) {
	p, _ := fakePool(1, "A", "B")
	var changes atomic.Int32
	p.changed = func() { changes.Add(1) }
	require.True(t, p.cordon("A", "Xid 79"))
	require.False(t, p.cordon("A", "Xid 79"))
	require.Equal(t, 1, p.slots(""))
	require.Equal(t, 0, p.slots("A"))
	require.Positive(t, changes.Load())
	b := mustTake(t, p, "x", "")
	require.Equal(t, "B", b.group)

	// A pinned call is refused at once: another host, or a later attempt, may do it.
	_, err := p.take(t.Context(), "x", "A", false)
	var fault *gpumux.Fault
	require.ErrorAs(t, err, &fault)
	require.Equal(t, gpumux.DeviceLost, fault.Kind)
	require.Contains(t, fault.Error(), "A is cordoned: Xid 79")

	// A call that waits while the last device goes is refused too.
	refused := make(chan error, 1)
	go func() { _, err := p.take(t.Context(), "x", "", false); refused <- err }()
	queued(t, p, 1)
	p.cordon("B", "lost")
	require.ErrorAs(t, <-refused, &fault)
	p.give(b)

	require.True(t, p.restore("A"))
	require.False(t, p.restore("A"))
	require.Equal(t, "A", mustTake(t, p, "x", "").group)
}

func TestPool_StopRefusesAndStopsEverySlot(t *testing.T) {
	p, fakes := fakePool(2, "A", "B")
	for range 4 {
		mustTake(t, p, "x", "")
	}
	refused := make(chan error, 1)
	go func() { _, err := p.take(t.Context(), "x", "", false); refused <- err }()
	queued(t, p, 1)
	require.NoError(t, p.stop(t.Context()))
	require.ErrorIs(t, <-refused, errPoolStopped)
	_, err := p.take(t.Context(), "x", "A", false)
	require.ErrorIs(t, err, errPoolStopped)
	for _, f := range fakes {
		require.EqualValues(t, 1, f.Stops.Load())
	}
}

// Many calls at once, some given up: no slot is ever used twice at a time, none is lost.
func TestPool_ManyCallsAtOnce(t *testing.T) {
	p, fakes := fakePool(2, "A", "B")
	var all sync.WaitGroup
	var ran atomic.Int32
	for i := range 200 {
		group := []string{"", "A", "B"}[i%3]
		limit := time.Duration(1+rand.IntN(20)) * time.Millisecond
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if i%2 == 0 {
				ctx = t.Context()
			}
			pl, err := p.take(ctx, "x", group, false)
			if err != nil {
				return
			}
			if pl.Run(ctx, slot.Call{Task: slot.Task{Name: "x"}}) == nil {
				ran.Add(1)
			}
			p.give(pl)
		})
	}
	all.Wait()
	require.GreaterOrEqual(t, ran.Load(), int32(100))
	require.Equal(t, 4, p.free(""))
	queued(t, p, 0)
	require.True(t, slices.ContainsFunc(fakes, func(f *slottest.Slot) bool { return f.Task() == "x" }))
}

func TestPool_AWholeDeviceWaitsForItsNeighboursAndKeepsThemOut(t *testing.T) {
	p, _ := fakePool(2, "A")
	first, err := p.take(t.Context(), "x", "", false)
	require.NoError(t, err)
	whole := make(chan *place)
	go func() {
		pl, err := p.take(t.Context(), "x", "", true)
		require.NoError(t, err)
		whole <- pl
	}()
	require.Eventually(t, func() bool { return p.free("") == 0 }, time.Minute, time.Millisecond, "the free slot is reserved")
	late := make(chan *place)
	go func() {
		pl, err := p.take(t.Context(), "x", "", false)
		require.NoError(t, err)
		late <- pl
	}()
	p.give(first)
	alone := <-whole
	require.Len(t, alone.beside, 1)
	select {
	case <-late:
		t.Fatal("a neighbour runs beside a call that has the device to itself")
	default:
	}
	p.give(alone)
	p.give(<-late)
	require.Equal(t, 2, p.free(""))
}

func TestPool_AWholeDeviceThatIsGivenUpIsFreeAgain(t *testing.T) {
	p, _ := fakePool(2, "A")
	busy, err := p.take(t.Context(), "x", "", false)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { _, err := p.take(ctx, "x", "", true); done <- err }()
	require.Eventually(t, func() bool { return p.free("") == 0 }, time.Minute, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.Equal(t, 1, p.free(""))
	p.give(busy)
}

func TestPool_ResizeDrainsAndEndsProcesses(t *testing.T) {
	p, fakes := fakePool(4, "A", "B")
	p.resize(3, 3)
	require.Equal(t, []int{6, 6, 3, 3}, []int{p.slots(""), p.free(""), p.slots("A"), p.size()})
	var held []*place
	for range 3 {
		pl := mustTake(t, p, "x", "A")
		pl.seat.(*slottest.Slot).Load("x", slot.Ready)
		held = append(held, pl)
	}
	got := make(chan *place, 2)
	for range 2 {
		go func() { pl, _ := p.take(context.Background(), "x", "A", false); got <- pl }()
	}
	queued(t, p, 2)

	// Less is effective at once: what runs goes on, nothing follows it, and its process ends.
	p.resize(1, 1)
	require.Equal(t, []int{2, 1, 1, 0}, []int{p.slots(""), p.free(""), p.slots("A"), p.free("A")})
	p.give(held[0])
	p.give(held[1])
	p.vacating.Wait()
	require.Empty(t, got)
	require.Equal(t, slot.Vacant, held[0].State())
	require.Equal(t, slot.Vacant, held[1].State())
	p.give(held[2])
	next := <-got
	require.Same(t, held[2], next, "the one whose process stays")
	require.Equal(t, slot.Ready, next.State())

	// More is granted at once.
	p.resize(2, 2)
	(<-got).seat.(*slottest.Slot).Load("x", slot.Ready)
	require.Equal(t, 0, p.free("A"))

	// Fewer calls at a time, with the processes kept.
	p.resize(1, 2)
	p.give(next)
	p.vacating.Wait()
	require.Equal(t, slot.Ready, next.State())
	p.resize(1, 1) // one of them is free now, and ends
	p.vacating.Wait()
	require.Equal(t, slot.Vacant, next.State())
	require.NoError(t, p.stop(t.Context()))
	for _, f := range fakes {
		require.EqualValues(t, 1, f.Stops.Load())
	}
}

func TestPool_ResizeKeepsAsManyProcessesAsItSays(t *testing.T) {
	p, fakes := fakePool(6, "A")
	loaded := func() (n int) {
		p.vacating.Wait()
		for _, f := range fakes {
			if f.State() == slot.Ready {
				n++
			}
		}
		return n
	}
	for _, f := range fakes {
		f.Load("x", slot.Ready)
	}
	p.resize(2, 4) // all are idle
	require.Equal(t, 4, loaded())
	p.resize(2, 2)
	require.Equal(t, 2, loaded())
	p.resize(6, 6)
	var held []*place
	for range 6 {
		pl := mustTake(t, p, "x", "")
		pl.seat.(*slottest.Slot).Load("x", slot.Ready)
		held = append(held, pl)
	}
	p.resize(1, 3) // all are busy
	for _, pl := range held {
		p.give(pl)
	}
	require.Equal(t, 3, loaded())
	require.Equal(t, 1, p.free(""))
}

// A process that takes its time to end holds up nobody but a call that wants the whole device.
func TestPool_ProcessThatIsSlowToEnd(t *testing.T) {
	p, _ := fakePool(2, "A")
	slow := make(chan struct{})
	for _, pl := range p.places {
		pl.seat.(*slottest.Slot).Load("x", slot.Ready)
		pl.seat = &reluctant{pl.seat.(*slottest.Slot), slow}
	}
	p.resize(1, 1)
	require.Equal(t, 1, p.free(""))
	p.give(mustTake(t, p, "x", ""))
	got := make(chan *place, 1)
	go func() { pl, _ := p.take(context.Background(), "x", "", true); got <- pl }()
	queued(t, p, 1)
	require.Empty(t, got)
	close(slow)
	require.Len(t, (<-got).beside, 1)
}

// A process that does not end at all, as one that hangs in the driver, is given up when the pool's time to stop is over.
func TestPool_StopGivesUpAProcessThatDoesNotEnd(t *testing.T) {
	p, _ := fakePool(2, "A")
	slow := make(chan struct{})
	for _, pl := range p.places {
		pl.seat.(*slottest.Slot).Load("x", slot.Ready)
		pl.seat = &reluctant{pl.seat.(*slottest.Slot), slow}
	}
	p.resize(1, 1)
	over, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the time is over"))
	stopped := make(chan error, 1)
	go func() { stopped <- p.stop(over) }()
	select {
	case err := <-stopped:
		require.ErrorContains(t, err, "stop pool gpu: a process that was one too many has not ended: the time is over")
	case <-time.After(time.Minute):
		t.Fatal("stop waits for the process")
	}
	close(slow)
	require.NoError(t, p.stop(t.Context()))
}

// reluctant is a slot whose process ends when it is told.
type reluctant struct {
	*slottest.Slot
	slow chan struct{}
}

func (r *reluctant) Clear(ctx context.Context) error { <-r.slow; return r.Slot.Clear(ctx) }

func TestPool_ResizedGroupIsTakenWhole(t *testing.T) {
	p, _ := fakePool(4, "A")
	p.resize(2, 2)
	a, b := mustTake(t, p, "x", ""), mustTake(t, p, "x", "")
	got := make(chan *place, 1)
	go func() { pl, _ := p.take(context.Background(), "x", "", true); got <- pl }()
	queued(t, p, 1)
	p.resize(1, 1)
	p.give(a)
	require.Empty(t, got)
	p.give(b)
	whole := <-got
	require.Len(t, whole.beside, 3)
	require.Equal(t, 0, p.free(""))
	p.give(whole)
	require.Equal(t, 1, p.free(""))
}

// Calls come, slots come and go, devices fail: never more calls at a time than ever were allowed, and none is lost.
func TestPool_ResizedAtRandom(t *testing.T) {
	p, _ := fakePool(6, "A", "B")
	p.resize(1, 1)
	var ran atomic.Int32
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			for range 200 {
				pl, err := p.take(context.Background(), "x", "", false)
				if err != nil {
					continue
				}
				if err := pl.Run(context.Background(), slot.Call{}); err == nil {
					ran.Add(1)
				}
				p.give(pl)
			}
		})
	}
	done := make(chan struct{})
	go func() { defer close(done); all.Wait() }()
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		open := 1 + random.IntN(6)
		p.resize(open, open+random.IntN(3))
		switch random.IntN(6) {
		case 0:
			p.cordon("A", "test")
		case 1:
			p.restore("A")
		}
	}
	p.restore("A")
	p.resize(2, 2)
	<-done
	require.EqualValues(t, 12*200, ran.Load())
	p.vacating.Wait()
	require.Equal(t, 4, p.free(""))
}

// lingeringSeat has a process that was killed and does not end before gone is closed; it is asked to again and again.
type lingeringSeat struct {
	*slottest.Slot
	gone chan struct{}
}

func (l *lingeringSeat) Clear(ctx context.Context) error {
	select {
	case <-l.gone:
		return l.Slot.Clear(ctx)
	case <-time.After(time.Millisecond):
		return errors.New("it does not end")
	}
}

// A place whose process was killed and does not end is nobody's until it has, also where a call had the device whole.
func TestPool_AProcessThatDoesNotEndTakesItsPlaceOutOfService(t *testing.T) {
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprintf("whole=%t", whole), func(t *testing.T) {
			p, fakes := fakePool(2, "A")
			seat := &lingeringSeat{fakes[1], make(chan struct{})}
			p.places[1].seat = seat
			var held []*place
			if whole {
				pl, err := p.take(t.Context(), "x", "", true)
				require.NoError(t, err)
				held = append(held, pl)
			} else {
				held = append(held, mustTake(t, p, "x", ""), mustTake(t, p, "x", ""))
				require.Same(t, p.places[1], held[1])
			}
			seat.Load("x", slot.Reclaiming)
			for _, pl := range held {
				p.give(pl)
			}
			require.Equal(t, 1, p.free(""))
			other := mustTake(t, p, "x", "")
			require.Same(t, p.places[0], other)
			require.Zero(t, p.free("A"))
			got := make(chan *place, 1)
			go func() { pl, _ := p.take(context.Background(), "x", "", false); got <- pl }()
			queued(t, p, 1)
			close(seat.gone)
			require.Same(t, p.places[1], <-got)
			require.Equal(t, slot.Vacant, seat.State())
		})
	}
}

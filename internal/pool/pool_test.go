package pool

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/gputest"
)

// fakePool has n slots on each device.
func fakePool(n int, devices ...string) (*Pool, []*gputest.Slot) {
	var seats []*Seat
	var fakes []*gputest.Slot
	for _, d := range devices {
		for range n {
			f := gputest.NewSlot()
			fakes = append(fakes, f)
			seats = append(seats, &Seat{Slot: f, Group: d})
		}
	}
	return NewLedger().New("gpu", seats), fakes
}

// queued waits until n calls wait in the pool.
func queued(t *testing.T, p *Pool, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		p.ledger.mu.Lock()
		defer p.ledger.mu.Unlock()
		return len(p.waiting) == n
	}, time.Minute, time.Millisecond)
}

func mustTake(t *testing.T, p *Pool, task, group string) *Seat {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	h, err := p.Acquire(ctx, Want{Task: task, Avoid: others(p, group)})
	require.NoError(t, err)
	return h
}

// others are the groups of a pool beside one; none beside "".
func others(p *Pool, group string) (all []string) {
	for _, h := range p.seats {
		if group != "" && h.Group != group {
			all = append(all, h.Group)
		}
	}
	return all
}

func TestPool_FirstComeFirstServed(t *testing.T) {
	p, _ := fakePool(1, "A")
	held := mustTake(t, p, "x", "")
	order := make(chan int, 8)
	for i := range 5 {
		go func() {
			h, err := p.Acquire(t.Context(), Want{Task: "x"})
			if err == nil {
				order <- i
				p.Release(h)
			}
		}()
		queued(t, p, i+1)
	}
	p.Release(held)
	for i := range 5 {
		require.Equal(t, i, <-order)
	}
}

func TestPool_PrefersALoadedProcess(t *testing.T) {
	p, fakes := fakePool(2, "A", "B")
	fakes[0].Load("other", slot.Ready)
	fakes[1].Load("mine", slot.Backoff)
	fakes[2].Load("", slot.Vacant)
	fakes[3].Load("mine", slot.Ready)
	var got []Slot
	for range 4 {
		got = append(got, mustTake(t, p, "mine", "").Slot)
	}
	// The process with the task, then no process, then another task's, then one that waits
	// after a failed start.
	require.Equal(t, []Slot{fakes[3], fakes[2], fakes[0], fakes[1]}, got)
}

func TestPool_SpreadsLoadOverDevices(t *testing.T) {
	p, _ := fakePool(2, "A", "B", "C")
	var got []string
	for range 6 {
		got = append(got, mustTake(t, p, "x", "").Group)
	}
	require.Equal(t, []string{"A", "B", "C", "A", "B", "C"}, got)
}

func TestPool_CordonMovesWorkAndRestoreTakesItBack(t *testing.T) {
	p, _ := fakePool(1, "A", "B")
	var changes atomic.Int32
	p.Changed = func() { changes.Add(1) }
	require.True(t, p.Cordon("A", "Xid 79"))
	require.False(t, p.Cordon("A", "Xid 79"))
	require.Equal(t, 1, p.Load().Slots)
	require.Positive(t, changes.Load())
	b := mustTake(t, p, "x", "")
	require.Equal(t, "B", b.Group)

	// A call that waits while the last device goes is refused: another host, or a later
	// attempt, may do it.
	var fault *gpumux.Fault
	refused := make(chan error, 1)
	go func() { _, err := p.Acquire(t.Context(), Want{Task: "x"}); refused <- err }()
	queued(t, p, 1)
	p.Cordon("B", "lost")
	require.ErrorAs(t, <-refused, &fault)
	require.Equal(t, gpumux.FaultDeviceLost, fault.Kind)
	require.Contains(t, fault.Error(), "B is cordoned: lost")
	p.Release(b)

	require.True(t, p.Uncordon("A"))
	require.False(t, p.Uncordon("A"))
	require.Equal(t, "A", mustTake(t, p, "x", "").Group)
}

func TestPool_StopRefusesAndStopsEverySlot(t *testing.T) {
	p, fakes := fakePool(2, "A", "B")
	for range 4 {
		mustTake(t, p, "x", "")
	}
	refused := make(chan error, 1)
	go func() { _, err := p.Acquire(t.Context(), Want{Task: "x"}); refused <- err }()
	queued(t, p, 1)
	require.NoError(t, p.Stop(t.Context()))
	require.ErrorIs(t, <-refused, ErrStopped)
	_, err := p.Acquire(t.Context(), Want{Task: "x"})
	require.ErrorIs(t, err, ErrStopped)
	for _, f := range fakes {
		require.EqualValues(t, 1, f.Stops.Load())
	}
}

// lingeringSlot has a process that was killed and does not end before gone is closed; it
// is asked to again and again.
type lingeringSlot struct {
	*gputest.Slot
	gone chan struct{}
}

func (l *lingeringSlot) Clear(ctx context.Context) error {
	select {
	case <-l.gone:
		return l.Slot.Clear(ctx)
	case <-time.After(time.Millisecond):
		return errors.New("it does not end")
	}
}

// A slot whose process was killed and does not end is nobody's until it has, also where a
// call had the device whole.
func TestPool_AProcessThatDoesNotEndTakesItsPlaceOutOfService(t *testing.T) {
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprintf("whole=%t", whole), func(t *testing.T) {
			p, fakes := fakePool(2, "A")
			lingering := &lingeringSlot{fakes[1], make(chan struct{})}
			p.seats[1].Slot = lingering
			var held []*Seat
			if whole {
				h, err := p.Acquire(t.Context(), Want{Task: "x", Whole: true})
				require.NoError(t, err)
				held = append(held, h)
			} else {
				held = append(held, mustTake(t, p, "x", ""), mustTake(t, p, "x", ""))
				require.Same(t, p.seats[1], held[1])
			}
			lingering.Load("x", slot.Reclaiming)
			for _, h := range held {
				p.Release(h)
			}
			require.Equal(t, 1, p.Load().Free)
			other := mustTake(t, p, "x", "")
			require.Same(t, p.seats[0], other)
			require.Zero(t, p.Load().Free)
			got := make(chan *Seat, 1)
			go func() { h, _ := p.Acquire(context.Background(), Want{Task: "x"}); got <- h }()
			queued(t, p, 1)
			close(lingering.gone)
			require.Same(t, p.seats[1], <-got)
			require.Equal(t, slot.Vacant, lingering.State())
		})
	}
}

func TestPool_AvoidedDevicesAreTheLastResort(t *testing.T) {
	p, _ := fakePool(1, "A", "B")
	held := mustTake(t, p, "x", "B")
	got := make(chan *Seat, 1)
	go func() {
		h, err := p.Acquire(t.Context(), Want{Task: "x", Avoid: []string{"A"}})
		if err == nil {
			got <- h
		}
	}()
	queued(t, p, 1) // although A is free
	p.Release(held)
	held = <-got
	require.Equal(t, "B", held.Group)
	p.Release(held)
	for _, whole := range []bool{false, true} {
		p.Cordon("B", "sick")
		h, err := p.Acquire(t.Context(), Want{Task: "x", Avoid: []string{"A"}, Whole: whole})
		require.NoError(t, err)
		require.Equal(t, "A", h.Group, "no other is healthy")
		p.Release(h)
		p.Uncordon("B")
		h, err = p.Acquire(t.Context(), Want{Task: "x", Avoid: []string{"A", "B"}, Whole: whole})
		require.NoError(t, err, "all are to be avoided")
		p.Release(h)
	}
}

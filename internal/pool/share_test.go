package pool

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/slot"
)

// asked is a call that waits for a slot, or has one.
type asked struct {
	seat   chan *Seat
	cancel context.CancelFunc
}

// ask begins to wait, and returns when the pool knows.
func ask(t *testing.T, p *Pool, want Want) *asked {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	a := &asked{seat: make(chan *Seat, 1), cancel: cancel}
	p.ledger.mu.Lock()
	before := p.ledger.arrived
	p.ledger.mu.Unlock()
	go func() {
		if h, err := p.Acquire(ctx, want); err == nil {
			a.seat <- h
		}
	}()
	require.Eventually(t, func() bool {
		p.ledger.mu.Lock()
		defer p.ledger.mu.Unlock()
		return p.ledger.arrived > before
	}, time.Minute, time.Millisecond)
	return a
}

func (a *asked) has(t *testing.T) *Seat {
	t.Helper()
	select {
	case h := <-a.seat:
		return h
	case <-t.Context().Done():
	}
	return nil
}

// A call joins others in a slot with room only where none is free, and where it can: the
// one with most room. One call at a time comes in.
func TestPool_CallsShareASlotWithRoom(t *testing.T) {
	p, fakes := fakePool(1, "A", "B")
	same := Want{Task: "x", Shares: "x"}
	a, b := ask(t, p, same).has(t), ask(t, p, same).has(t)
	require.NotSame(t, a, b, "a free slot comes first")
	first, second := ask(t, p, same), ask(t, p, same)
	queued(t, p, 2)
	fakes[0].Offer(1, 5)
	fakes[1].Offer(1, 9)
	require.Equal(t, Load{Slots: 2, Busy: 2, Spare: 2}, p.Load())
	p.Spare()
	require.Same(t, fakes[1], first.has(t).Slot)
	require.Same(t, fakes[0], second.has(t).Slot)
	require.Equal(t, Load{Slots: 2, Busy: 2, Joined: 2}, p.Load(), "until the slots have them")
	third := ask(t, p, same)
	queued(t, p, 1)
	fakes[1].Offer(2, 3)
	p.Spare()
	require.Same(t, fakes[1], third.has(t).Slot)
	for range 3 {
		require.Empty(t, p.Load().Free)
		p.Release(b)
	}
	require.Equal(t, Load{Slots: 2, Busy: 1, Free: 1, Joined: 1}, p.Load(), "free once the last has gone")
}

// Room is for calls that share it: no other task, argument or whole device.
func TestPool_WhoCannotShareDrainsOneSlot(t *testing.T) {
	p, fakes := fakePool(1, "A", "B", "C")
	same := Want{Task: "x", Shares: "x"}
	for range 3 {
		ask(t, p, same).has(t)
	}
	for i, fake := range fakes {
		fake.Offer(1, int64(5+i))
	}
	other := ask(t, p, Want{Task: "y", Shares: "y"})
	queued(t, p, 1)
	require.Equal(t, 2, p.Load().Spare, "the emptiest slot gets no more calls")
	h := ask(t, p, same).has(t)
	require.Same(t, fakes[1], h.Slot)

	other.cancel()
	queued(t, p, 0)
	again := ask(t, p, Want{Task: "y"})
	queued(t, p, 1)
	require.Equal(t, 1, p.Load().Spare, "one slot drains already")
	p.Release(p.seats[2])
	require.Same(t, fakes[2], again.has(t).Slot)

	whole := ask(t, p, Want{Task: "x", Whole: true})
	queued(t, p, 1)
	require.Zero(t, p.Load().Spare, "it is kept for the call that wants it whole")
	whole.cancel()
}

// A slot shared by calls of a cordoned device, or that is one too many, gets no more.
func TestPool_NoRoomWhereNoneIsWanted(t *testing.T) {
	p, fakes := fakePool(1, "A")
	same := Want{Task: "x", Shares: "x"}
	h := ask(t, p, same).has(t)
	fakes[0].Offer(1, 5)
	require.Equal(t, 1, p.Load().Spare)
	p.Cordon("A", "sick")
	require.Zero(t, p.Load().Spare)
	p.Uncordon("A")
	joined := ask(t, p, same).has(t)
	require.Same(t, h, joined)
	// The first call may leave before the one that joined.
	p.Release(h)
	require.Equal(t, 1, p.Load().Busy)
	p.Release(joined)
	require.Equal(t, Load{Slots: 1, Free: 1}, p.Load())
}

// Tasks whose calls can share have slots of their own, and take none from each other once
// they have as many.
func TestPool_TasksThatShareKeepTheirSlots(t *testing.T) {
	p, fakes := fakePool(1, "A", "B", "C")
	x, y := Want{Task: "x", Shares: "x"}, Want{Task: "y", Shares: "y"}
	for i, want := range []Want{x, x, y} {
		ask(t, p, want).has(t)
		fakes[i].Offer(1, 5)
	}
	fakes[2].Offer(1, 0)
	waits := ask(t, p, y)
	queued(t, p, 1)
	require.Equal(t, 1, p.Load().Spare, "x has more than y")
	p.Release(p.seats[0])
	require.Same(t, fakes[0], waits.has(t).Slot)
	fakes[0].Offer(1, 0)
	ask(t, p, y)
	queued(t, p, 1)
	require.Equal(t, 1, p.Load().Spare, "y has more than x")
}

// Where a group is to have fewer calls at a time, no call joins those that it has.
func TestPool_NoRoomInACrowdedGroup(t *testing.T) {
	p, fakes := fakePool(2, "A")
	for i := range 2 {
		ask(t, p, Want{Task: "x", Shares: "x"}).has(t)
		fakes[i].Load("x", slot.Busy)
		fakes[i].Offer(1, 5)
	}
	require.Equal(t, 2, p.Load().Spare)
	p.Resize(1)
	require.Zero(t, p.Load().Spare)
	p.Release(p.seats[0])
	require.Equal(t, 1, p.Load().Spare)
}

package pool

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/gputest"
)

// Leases have no more slots than they may, on top of those that Resize allows for calls,
// and leave no process behind.
func TestPool_Leases(t *testing.T) {
	p, _ := fakePool(4, "A")
	p.Leases = 2
	p.Resize(1)
	lease := func(ctx context.Context) (*Seat, error) { return p.Acquire(ctx, Want{Lease: true}) }
	first, err := lease(t.Context())
	require.NoError(t, err)
	second, err := lease(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int{3, 1, 2, 0}, []int{p.Load().Slots, p.Load().Free, p.Load().Leased, p.Load().Leasable})

	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = lease(short)
	require.ErrorIs(t, err, context.DeadlineExceeded, "a third one waits")
	call := mustTake(t, p, "x", "")
	require.Equal(t, []int{3, 0}, []int{p.Load().Slots, p.Load().Free}, "calls have one slot")

	first.Slot.(*gputest.Slot).Load("x", slot.Ready)
	call.Slot.(*gputest.Slot).Load("x", slot.Ready)
	p.Resize(1)
	require.Equal(t, slot.Ready, first.State(), "a leased slot is never one too many")
	p.Release(first)
	p.evicting.Wait()
	require.Equal(t, slot.Vacant, first.State(), "its process ends with the lease")
	require.Equal(t, []int{1, 1}, []int{p.Load().Leased, p.Load().Leasable})
	p.Release(second)
	p.Release(call)
	p.evicting.Wait()
	require.Equal(t, slot.Ready, call.State())
	require.Equal(t, []int{1, 1, 2}, []int{p.Load().Slots, p.Load().Free, p.Load().Leasable})
}

// A call that wants the device whole waits for a lease there without keeping the other
// slots idle, and no other lease comes before it.
func TestPool_WholeCallsBesideLeases(t *testing.T) {
	p, _ := fakePool(4, "A")
	p.Leases = 2
	lease, err := p.Acquire(t.Context(), Want{Lease: true})
	require.NoError(t, err)
	whole := make(chan *Seat, 1)
	go func() { h, _ := p.Acquire(context.Background(), Want{Whole: true}); whole <- h }()
	queued(t, p, 1)
	require.Zero(t, p.Load().Leasable)
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = p.Acquire(short, Want{Lease: true})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	call := mustTake(t, p, "x", "")
	p.Release(lease)
	p.evicting.Wait()
	require.Empty(t, whole, "an ordinary call runs")
	require.Zero(t, p.Load().Free, "but no other one begins")
	p.Release(call)
	h := <-whole
	require.Len(t, h.Beside, 3)
	p.Release(h)
	require.Equal(t, 2, p.Load().Leasable)
}

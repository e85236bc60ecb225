package pool

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/gputest"
)

func TestPool_ResizeDrainsAndEndsProcesses(t *testing.T) {
	p, fakes := fakePool(4, "A", "B")
	p.Resize(3)
	require.Equal(t, []int{6, 6, 3}, []int{p.Load().Slots, p.Load().Free, p.Size()})
	var held []*Seat
	for range 3 {
		h := mustTake(t, p, "x", "A")
		h.Slot.(*gputest.Slot).Load("x", slot.Ready)
		held = append(held, h)
	}
	got := make(chan *Seat, 2)
	for range 2 {
		go func() { h, _ := p.Acquire(context.Background(), Want{Task: "x", Avoid: []string{"B"}}); got <- h }()
	}
	queued(t, p, 2)

	// Less is effective at once: what runs goes on, nothing follows it, and its process
	// ends.
	p.Resize(1)
	require.Equal(t, []int{2, 1}, []int{p.Load().Slots, p.Load().Free})
	p.Release(held[0])
	p.Release(held[1])
	p.evicting.Wait()
	require.Empty(t, got)
	require.Equal(t, slot.Vacant, held[0].State())
	require.Equal(t, slot.Vacant, held[1].State())
	p.Release(held[2])
	next := <-got
	require.Same(t, held[2], next, "the one whose process stays")
	require.Equal(t, slot.Ready, next.State())

	// More is granted at once.
	p.Resize(2)
	(<-got).Slot.(*gputest.Slot).Load("x", slot.Ready)
	require.Equal(t, 2, p.Load().Free, "those of B")

	// One of them is free then, and ends.
	p.Release(next)
	p.Resize(1)
	p.evicting.Wait()
	require.Equal(t, slot.Vacant, next.State())
	require.NoError(t, p.Stop(t.Context()))
	for _, f := range fakes {
		require.EqualValues(t, 1, f.Stops.Load())
	}
}

// A process that takes its time to end holds up nobody but a call that wants the whole
// device.
func TestPool_ProcessThatIsSlowToEnd(t *testing.T) {
	p, _ := fakePool(2, "A")
	slow := make(chan struct{})
	for _, h := range p.seats {
		h.Slot.(*gputest.Slot).Load("x", slot.Ready)
		h.Slot = &reluctant{h.Slot.(*gputest.Slot), slow}
	}
	p.Resize(1)
	require.Equal(t, 1, p.Load().Free)
	p.Release(mustTake(t, p, "x", ""))
	got := make(chan *Seat, 1)
	go func() { h, _ := p.Acquire(context.Background(), Want{Task: "x", Whole: true}); got <- h }()
	queued(t, p, 1)
	require.Empty(t, got)
	close(slow)
	require.Len(t, (<-got).Beside, 1)
}

// A process that does not end at all, as one that hangs in the driver, is given up when
// the pool's time to stop is over.
func TestPool_StopGivesUpAProcessThatDoesNotEnd(t *testing.T) {
	p, _ := fakePool(2, "A")
	slow := make(chan struct{})
	for _, h := range p.seats {
		h.Slot.(*gputest.Slot).Load("x", slot.Ready)
		h.Slot = &reluctant{h.Slot.(*gputest.Slot), slow}
	}
	p.Resize(1)
	over, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the time is over"))
	stopped := make(chan error, 1)
	go func() { stopped <- p.Stop(over) }()
	select {
	case err := <-stopped:
		require.ErrorContains(t, err, "stop pool gpu: a process that was one too many has not ended: the time is over")
	case <-time.After(time.Minute):
		t.Fatal("stop waits for the process")
	}
	close(slow)
	require.NoError(t, p.Stop(t.Context()))
}

// reluctant is a slot whose process ends when it is told.
type reluctant struct {
	*gputest.Slot
	slow chan struct{}
}

func (r *reluctant) Clear(ctx context.Context) error { <-r.slow; return r.Slot.Clear(ctx) }

// Calls come, slots come and go, devices fail: never more calls at a time than ever were
// allowed, and none is lost.
func TestPool_ResizedAtRandom(t *testing.T) {
	p, _ := fakePool(6, "A", "B")
	p.Resize(1)
	var ran atomic.Int32
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			for range 200 {
				h, err := p.Acquire(context.Background(), Want{Task: "x"})
				if err != nil {
					continue
				}
				if err := h.Run(context.Background(), launch.Task{}, slot.Call{}); err == nil {
					ran.Add(1)
				}
				p.Release(h)
			}
		})
	}
	done := make(chan struct{})
	go func() { defer close(done); all.Wait() }()
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		p.Resize(1 + random.IntN(6))
		switch random.IntN(6) {
		case 0:
			p.Cordon("A", "test")
		case 1:
			p.Uncordon("A")
		}
	}
	p.Uncordon("A")
	p.Resize(2)
	<-done
	require.EqualValues(t, 12*200, ran.Load())
	p.evicting.Wait()
	require.Equal(t, 4, p.Load().Free)
}

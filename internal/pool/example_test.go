package pool_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/pool"
	"github.com/gpumux/gpumux/internal/test/gputest"
)

// A call has a slot until it gives it back.
func ExamplePool() {
	ctx := context.Background()
	p := pool.NewLedger().New("gpu", []*pool.Seat{
		{Slot: gputest.NewSlot(), Group: "GPU-1d04"},
		{Slot: gputest.NewSlot(), Group: "GPU-77ab"},
	})
	defer p.Stop(ctx)
	fmt.Println(p.Load().Slots, "slots,", p.Load().Free, "free")
	h, err := p.Acquire(ctx, pool.Want{Task: "embed"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("one is at work:", p.Load().Busy, "busy,", p.Load().Free, "free")
	p.Release(h)
	fmt.Println("none is:", p.Load().Busy, "busy,", p.Load().Free, "free")
	// Output:
	// 2 slots, 2 free
	// one is at work: 1 busy, 1 free
	// none is: 0 busy, 2 free
}

// A call may have a device to itself.
func ExamplePool_Acquire() {
	ctx := context.Background()
	p := pool.NewLedger().New("gpu", []*pool.Seat{
		{Slot: gputest.NewSlot(), Group: "GPU-1d04"},
		{Slot: gputest.NewSlot(), Group: "GPU-1d04"},
		{Slot: gputest.NewSlot(), Group: "GPU-77ab"},
	})
	defer p.Stop(ctx)
	whole, err := p.Acquire(ctx, pool.Want{Task: "train", Whole: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(whole.Group, "is taken,", p.Load().Free, "slot free")
	p.Release(whole)
	fmt.Println("none is,", p.Load().Free, "free")
	// Output:
	// GPU-1d04 is taken, 1 slot free
	// none is, 3 free
}

// A device that is not well gets no new calls; where none is left, they fail at once.
func ExamplePool_Cordon() {
	ctx := context.Background()
	p := pool.NewLedger().New("gpu", []*pool.Seat{{Slot: gputest.NewSlot(), Group: "GPU-1d04"}})
	defer p.Stop(ctx)
	p.Cordon("GPU-1d04", "it fell off the bus")
	_, err := p.Acquire(ctx, pool.Want{Task: "embed"})
	var fault *gpumux.Fault
	if errors.As(err, &fault) {
		fmt.Println(fault.Kind, p.Load().Slots)
	}
	p.Uncordon("GPU-1d04")
	_, err = p.Acquire(ctx, pool.Want{Task: "embed"})
	fmt.Println(err, p.Load().Slots)
	// Output:
	// device_lost 0
	// <nil> 1
}

// Once a pool stops, nobody gets a slot.
func ExamplePool_Stop() {
	ctx := context.Background()
	p := pool.NewLedger().New("gpu", []*pool.Seat{{Slot: gputest.NewSlot(), Group: "GPU-1d04"}})
	if err := p.Stop(ctx); err != nil {
		log.Fatal(err)
	}
	_, err := p.Acquire(ctx, pool.Want{Task: "embed"})
	fmt.Println(errors.Is(err, pool.ErrStopped))
	// Output:
	// true
}

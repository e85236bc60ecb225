package task_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/gpumux/gpumux/task"
)

// The main of a task program in Go: the worker starts it, names a handler and sends
// items.
func ExampleServe() {
	type point struct{ X, Y float64 }
	square := func(ctx context.Context, p point) (float64, error) {
		if p.X < 0 {
			return 0, fmt.Errorf("x is %g", p.X) // the item's fault; the next item runs
		}
		return p.X*p.X + p.Y*p.Y, task.Progress(ctx, "nearly there")
	}
	err := task.Serve(context.Background(), map[string]task.Handler{"square": task.Func(square)})
	if err != nil {
		log.Fatal(err)
	}
}

// A handler takes JSON and makes JSON; Func makes one of a function on Go values, which a
// test calls without a worker.
func ExampleFunc() {
	double := task.Func(func(_ context.Context, n int) (int, error) { return 2 * n, nil })
	value, err := double(context.Background(), json.RawMessage(`21`))
	fmt.Println(string(value), err)
	_, err = double(context.Background(), json.RawMessage(`"x"`))
	fmt.Println(err != nil)
	// Output:
	// 42 <nil>
	// true
}

// Outside of a slot a task can be run by hand.
func ExampleSeatOf() {
	embed := func(ctx context.Context, text string) (string, error) {
		if seat, ok := task.SeatOf(ctx); ok {
			return text + " on " + seat.Device, nil
		}
		return text + " by hand", nil
	}
	fmt.Println(embed(context.Background(), "run"))
	// Output:
	// run by hand <nil>
}

// Command gotask is a task process in Go: a worker starts it in a slot and sends it
// items.
//
// It owns the task primes. It never talks to Temporal and opens no port: the worker
// speaks with it over the wire (docs/wire.md). It ends when the worker says so or is
// gone.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/gpumux/gpumux/task"
)

// interval is an item: the numbers From up to but not including To.
type interval struct {
	From int `json:"from"`
	To   int `json:"to"`
}

// found is the result of an interval.
type found struct {
	Primes  int `json:"primes"`
	Largest int `json:"largest,omitempty"`
}

func main() {
	err := task.Serve(context.Background(), map[string]task.Handler{"primes": task.Func(primes)})
	if err != nil {
		log.Fatal(err)
	}
}

// primes counts the prime numbers of an interval. An error is the item's fault; the
// process goes on with the next item.
func primes(ctx context.Context, in interval) (found, error) {
	if in.From < 0 || in.To < in.From {
		return found{}, fmt.Errorf("from %d to %d is no interval of natural numbers", in.From, in.To)
	}
	var out found
	for n := in.From; n < in.To; n++ {
		if prime(n) {
			out.Primes++
			out.Largest = n
		}
	}
	return out, ctx.Err()
}

func prime(n int) bool {
	for d := 2; d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return n > 1
}

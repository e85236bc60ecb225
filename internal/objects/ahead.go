package objects

import "iter"

// Outcome is what a call gave.
type Outcome[T any] struct {
	Value T
	Err   error
}

// Ahead calls f for each input, so many at a time, and yields the answers in order.
func Ahead[In, Out any](limit int, inputs iter.Seq[In], f func(In) (Out, error)) iter.Seq2[In, Outcome[Out]] {
	return func(yield func(In, Outcome[Out]) bool) {
		type call struct {
			in   In
			gave chan Outcome[Out]
		}
		var calls []call
		defer func() {
			for _, c := range calls {
				<-c.gave
			}
		}()
		first := func() bool {
			c := calls[0]
			calls = calls[1:]
			return yield(c.in, <-c.gave)
		}
		for in := range inputs {
			c := call{in, make(chan Outcome[Out], 1)}
			go func() {
				value, err := f(in)
				c.gave <- Outcome[Out]{value, err}
			}()
			if calls = append(calls, c); len(calls) == limit && !first() {
				return
			}
		}
		for len(calls) > 0 {
			if !first() {
				return
			}
		}
	}
}

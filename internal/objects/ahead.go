package objects

import "iter"

// Ahead calls f for each input, so many at a time, and yields the answers in order.
func Ahead[In, Out any](limit int, inputs iter.Seq[In], f func(In) (Out, error)) iter.Seq2[Out, error] {
	return func(yield func(Out, error) bool) {
		type answer struct {
			out Out
			err error
		}
		var calls []chan answer
		defer func() {
			for _, c := range calls {
				<-c
			}
		}()
		first := func() bool {
			a := <-calls[0]
			calls = calls[1:]
			return yield(a.out, a.err)
		}
		for in := range inputs {
			c := make(chan answer, 1)
			go func() {
				out, err := f(in)
				c <- answer{out, err}
			}()
			if calls = append(calls, c); len(calls) == limit && !first() {
				return
			}
		}
		for len(calls) > 0 && first() {
		}
	}
}

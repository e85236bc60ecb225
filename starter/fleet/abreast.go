package fleet

import "sync"

// Abreast calls f with 0 to n-1, most of them at a time.
func Abreast(n, most int, f func(i int)) {
	var calls sync.WaitGroup
	room := make(chan struct{}, most)
	for i := range n {
		room <- struct{}{}
		calls.Go(func() {
			defer func() { <-room }()
			f(i)
		})
	}
	calls.Wait()
}

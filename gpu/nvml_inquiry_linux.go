//go:build cgo

package gpu

import (
	"fmt"
	"sync/atomic"
	"time"
)

// inquiries are the questions about one device, or of one watch, of which the driver has one at a time: a call that hangs, as they
// do when a GPU falls off the bus, cannot be ended, and more of them would hang as well.
type inquiries struct {
	turn  chan struct{}             // full while the driver has a question
	asked atomic.Pointer[time.Time] // when it was given that, or nil
}

func newInquiries() *inquiries { return &inquiries{turn: make(chan struct{}, 1)} }

// silent is for how long the driver has owed an answer.
func (q *inquiries) silent() time.Duration {
	if asked := q.asked.Load(); asked != nil {
		return time.Since(*asked)
	}
	return 0
}

// begin waits for the question before, but not for one that the driver has had for longer than patience.
func (q *inquiries) begin(patience time.Duration, limit <-chan time.Time) bool {
	select {
	case q.turn <- struct{}{}:
	default:
		if q.silent() >= patience {
			return false
		}
		select {
		case q.turn <- struct{}{}:
		case <-limit:
			return false
		}
	}
	now := time.Now()
	q.asked.Store(&now)
	return true
}

func (q *inquiries) end() {
	q.asked.Store(nil)
	<-q.turn
}

// ask has the driver answer a question, for which it waits as long as patience. The caller has entered, or is a watch.
func ask[T any](d *nvmlDriver, q *inquiries, patience time.Duration, question func() (T, error)) (T, error) {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	type answer struct {
		value T
		err   error
	}
	answered := make(chan answer, 1)
	if q.begin(patience, limit.C) {
		d.calls.Go(func() {
			value, err := question()
			q.end()
			answered <- answer{value, err}
		})
		select {
		case a := <-answered:
			return a.value, a.err
		case <-limit.C:
		}
	}
	var none T
	return none, fmt.Errorf("%w for %s", ErrSilent, max(patience, q.silent()).Round(time.Second))
}

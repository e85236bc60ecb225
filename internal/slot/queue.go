package slot

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gpumux/gpumux/internal/arrays"
	"github.com/gpumux/gpumux/internal/calls"
)

type item struct {
	calls.Item
	call *call
	// tries is how often it has raised. It was the nth of a run, sent to the process at that
	// time.
	tries int
	run   int64
	n     int
	sent  time.Time
	// began is when its time limit began to count; zero: it waits for others to end.
	began time.Time
	// limit is how long after that its process is ended. One that runs many ends it before.
	limit time.Duration
}

func (i item) overdue() bool {
	return i.limit > 0 && !i.began.IsZero() && time.Since(i.began) >= i.limit
}

func (i *item) size() int { return len(i.Value) + len(i.Arrays) }

// text is the item as JSON.
func (i *item) text() json.RawMessage {
	if i.Arrays == nil {
		return i.Value
	}
	value, _ := arrays.Text(i.Arrays) // its queue has checked it
	return value
}

// outline is the item's JSON without the numbers of arrays.
func (i *item) outline() []byte {
	if i.Arrays == nil {
		return i.Value
	}
	return arrays.Outline(i.Arrays)
}

// frameBytes is how many bytes of items one frame holds; at least one item always fits.
const frameBytes = 1 << 20

// queue holds the items of a call that no process has. A goroutine pulls as many as are
// wanted, so that running items never wait for a slow source. The methods lock.
type queue struct {
	// news has a token when what was asked for may be there. All queues of a job share it.
	news chan struct{}
	gone chan struct{}

	mu     sync.Mutex // guards what follows
	wake   *sync.Cond
	items  []item
	bytes  int
	pulled int64
	// The goroutine pulls until wanted items are there, and sends news when enough are.
	wanted, enough int
	// over: no more items come; err is why, where that is not their end.
	over bool
	err  error
	// pulling: the goroutine is inside the source, which may block. left: the call is over.
	pulling, left bool
}

func newQueue(owner *call, news chan struct{}) *queue {
	q := &queue{news: news, gone: make(chan struct{}), wanted: 1, enough: 1, pulling: true}
	q.wake = sync.NewCond(&q.mu)
	go q.pull(owner)
	return q
}

func (q *queue) pull(owner *call) {
	defer func() {
		q.mu.Lock()
		q.over, q.pulling = true, false
		q.mu.Unlock()
		signal(q.news)
		close(q.gone)
	}()
	for one, err := range owner.Work.Items() {
		if err == nil && one.Arrays != nil {
			if err = arrays.Check(one.Arrays); err != nil {
				err = fmt.Errorf("item %d is damaged: %w; run the task again that returned it", one.Index, err)
			}
		}
		if !q.add(item{Item: one, call: owner}, err) {
			return
		}
	}
}

// add queues what was pulled, and waits until more is wanted. False ends the pulling.
func (q *queue) add(one item, err error) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		q.err = err
		return false
	}
	if !q.left {
		q.pulled++
		q.items = append(q.items, one)
		q.bytes += one.size()
	}
	if len(q.items) == q.enough || q.full(q.wanted) {
		signal(q.news)
	}
	for !q.left && q.full(q.wanted) {
		q.pulling = false
		q.wake.Wait()
	}
	q.pulling = !q.left
	return q.pulling
}

// ready reports how many items there are. While fewer than enough are there and more may
// come, it asks for n, and the answer is not known. err is why no more come, where that
// is not their end.
func (q *queue) ready(enough, n int) (known bool, count int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if known = q.over || q.full(enough); !known {
		q.ask(enough, n)
	}
	return known, len(q.items), q.err
}

// remaining is how many items are to come, of all that there are at most; 0: that is
// unknown.
func (q *queue) remaining(all int64) int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	count := int64(len(q.items))
	switch {
	case q.over:
		return count
	case all == 0:
		return endless
	}
	return count + max(0, all-q.pulled)
}

// take appends up to n items that fit into a frame. While more may come, it takes whole
// micro-batches of unit items; while fewer than enough are there and they do not fill a
// frame, it takes none and asks for n. Then it has ahead items pulled, or as many as it
// was asked for.
func (q *queue) take(to []item, enough, n, unit, ahead int) []item {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.over && !q.full(enough) {
		q.ask(enough, n)
		return to
	}
	limit := min(n, len(q.items))
	if limit < n && limit > unit && !q.over {
		limit = limit / unit * unit
	}
	taken, bytes := 0, 0
	for taken < limit && (bytes < frameBytes || taken == 0) {
		bytes += q.items[taken].size()
		taken++
	}
	to = append(to, q.items[:taken]...)
	q.items = slices.Delete(q.items, 0, taken)
	q.bytes -= bytes
	q.wanted = 0
	if (n > unit || ahead > 0) && taken == limit && !q.over {
		q.ask(cmp.Or(min(ahead, 1), n), max(n, ahead)) // the next ones are on their way while these run
	}
	return to
}

func (q *queue) back(items ...item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items = slices.Concat(items, q.items)
	for _, each := range items {
		q.bytes += each.size()
	}
}

// leave drops all items and ends the pulling. It reports whether the goroutine is inside
// the source.
func (q *queue) leave() (pulling bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.left, q.over, q.items, q.bytes = true, true, nil, 0
	q.wake.Signal()
	return q.pulling
}

// end ends the goroutine. One that is inside the source is left behind: it ends when the
// source returns, and pulls nothing more.
func (q *queue) end(ctx context.Context) {
	if q.leave() {
		return
	}
	select {
	case <-q.gone:
	case <-ctx.Done():
	}
}

// ask lets the goroutine pull n items, or a frame's worth, with news when enough are
// there.
func (q *queue) ask(enough, n int) {
	q.wanted, q.enough = n, enough
	q.wake.Signal()
}

func (q *queue) full(n int) bool { return len(q.items) >= n || q.bytes >= frameBytes }

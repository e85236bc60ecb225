// Package intake pulls items ahead of the process that runs them.
//
// It owns the goroutine that pulls, and how many items wait. It never runs an item. End stops it; a source that blocks keeps the goroutine
// until it returns.
package intake

import (
	"context"
	"iter"
	"sync"

	"github.com/gpumux/gpumux"
)

// Intake pulls a call's items in a goroutine of its own, as many as are asked for: what runs never waits for a source that is slow
// or away.
type Intake struct {
	// frame is how many bytes of items are enough.
	frame int
	// news has a token when what was asked for may be there.
	news chan struct{}
	// gone is closed when the goroutine has ended.
	gone chan struct{}

	mu   sync.Mutex // guards what follows
	wake *sync.Cond
	// ready are items that nobody has taken yet, of so many bytes; asked is how many there are to be, least with how many there is
	// news.
	ready        []gpumux.Item
	bytes        int
	asked, least int
	// over says that no more items come, err why, where that is not their end.
	over bool
	err  error
	// pulling says that the source has the goroutine, left that the call is over.
	pulling, left bool
}

// New asks for the first item. So many bytes of items are as good as any number.
func New(items iter.Seq2[gpumux.Item, error], frame int) *Intake {
	in := &Intake{frame: frame, news: make(chan struct{}, 1), gone: make(chan struct{}), asked: 1, least: 1, pulling: true}
	in.wake = sync.NewCond(&in.mu)
	go in.pull(items)
	return in
}

func (in *Intake) pull(items iter.Seq2[gpumux.Item, error]) {
	defer func() {
		in.mu.Lock()
		in.over, in.pulling = true, false
		in.mu.Unlock()
		in.tell()
		close(in.gone)
	}()
	for item, err := range items {
		if !in.add(item, err) {
			return
		}
	}
}

// add takes in what was pulled, and returns when more is to be pulled. Nothing more is when it returns false.
func (in *Intake) add(item gpumux.Item, err error) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if err != nil {
		in.err = err
		return false
	}
	in.ready = append(in.ready, item)
	in.bytes += len(item.Value)
	if len(in.ready) == in.least || in.full(in.asked) {
		in.tell()
	}
	for !in.left && in.full(in.asked) {
		in.pulling = false
		in.wake.Wait()
	}
	in.pulling = !in.left
	return in.pulling
}

// full reports whether there are n items, or as many as a frame holds.
func (in *Intake) full(n int) bool { return len(in.ready) >= n || in.bytes >= in.frame }

func (in *Intake) tell() {
	select {
	case in.news <- struct{}{}:
	default:
	}
}

// Ask has up to n items pulled, before anybody wants to have them.
func (in *Intake) Ask(n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.asked, in.least = n, n
	in.wake.Signal()
}

// News has a token when what was asked for may be there.
func (in *Intake) News() <-chan struct{} { return in.news }

// Take gives all items that are ready, where these are at least least, or enough for a frame, or the last. Else it asks for n of them,
// and there is news as soon as there are least.
func (in *Intake) Take(least, n int, give func(gpumux.Item)) (enough, over bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.over && !in.full(least) {
		in.asked, in.least = n, least
		in.wake.Signal()
		return false, false
	}
	for _, item := range in.ready {
		give(item)
	}
	clear(in.ready)
	in.ready, in.bytes, in.asked = in.ready[:0], 0, 0
	return true, in.over
}

// Failure is why there are no more items, where that is not their end.
func (in *Intake) Failure() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.err
}

// Leave has nothing more pulled, and says whether the source has the goroutine.
func (in *Intake) Leave() (pulling bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.left = true
	in.wake.Signal()
	return in.pulling
}

// End ends the goroutine. Where the source has it, it is left behind: it ends when the source lets go of it, and pulls nothing
// more.
func (in *Intake) End(ctx context.Context) {
	if in.Leave() {
		return
	}
	select {
	case <-in.gone:
	case <-ctx.Done():
	}
}

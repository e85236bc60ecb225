package slot

import (
	"encoding/json"
	"time"
)

// flight are the items that a process has and did not answer, in order.
type flight struct {
	items []item
	// track is the memory in which the items move on.
	track []item
	// began is when the first item did; items count the time of their frame from base.
	began, base time.Time
}

// launch takes up to n items from the queue for the frame with this number, and returns
// their values.
func (f *flight) launch(q *queue, n int, frame int64) []json.RawMessage {
	before, now := len(f.items), time.Now()
	if f.base.IsZero() {
		f.base = now
	}
	sent := now.Sub(f.base)
	f.room(n)
	f.items = q.take(n, f.items)
	values := make([]json.RawMessage, len(f.items)-before)
	for i := range values {
		one := &f.items[before+i]
		one.run, one.n, one.sent = frame, i, sent
		values[i] = one.Value
	}
	if before == 0 {
		f.began = now
	}
	return values
}

// room makes room for n more items.
func (f *flight) room(n int) {
	if cap(f.items)-len(f.items) >= n {
		return
	}
	if all := len(f.items) + n; cap(f.track) < all {
		f.track = make([]item, 0, 2*all)
	}
	f.items = append(f.track[:0], f.items...)
}

// first is the item whose turn it is, or nil.
func (f *flight) first() *item {
	if len(f.items) == 0 {
		return nil
	}
	return &f.items[0]
}

// due reports whether this is the item that the process has to answer next.
func (f *flight) due(run int64, n int) bool {
	return len(f.items) > 0 && f.items[0].run == run && f.items[0].n == n
}

// land takes the first item out.
func (f *flight) land() (index int64) {
	index = f.items[0].Index
	f.items[0].Value = nil // it may be large
	f.items = f.items[1:]
	return index
}

// landed notes when the last item that was answered has ended. The next one began then,
// however late that is read, or when it was sent.
func (f *flight) landed(ended, now time.Time) {
	if len(f.items) > 0 {
		if sent := f.base.Add(f.items[0].sent); ended.Before(sent) {
			ended = sent
		}
	}
	if ended.Before(f.began) || !ended.Before(now) {
		ended = now
	}
	f.began = ended
}

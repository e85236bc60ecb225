// Package record stores the results of chunks as they come.
//
// It owns when a worker writes results into the store, how long that may take, and how
// much may wait for it. It never decides what a result is, or whether an item runs again.
// The goroutine of a recorder ends with the last chunk of its map on this worker. After
// ten seconds the next chunk of any map has the recorder forgotten.
package record

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/store"
)

const (
	// diskEvery is how often finished items are stored on disk: a killed worker loses no
	// more than that. On a server it is serverEvery, or hurryEvery when a chunk waits for it
	// to end.
	diskEvery   = 250 * time.Millisecond
	serverEvery = time.Second
	hurryEvery  = 250 * time.Millisecond
	// Unstored is how many bytes may wait for the store before chunks take no further item.
	Unstored = 32 << 20
	// longWrite is how long a write may take before the pending activity says so.
	longWrite = 5 * time.Second
	// recorderIdle is how long a recorder waits for the next chunk of its map.
	recorderIdle = 10 * time.Second
	// FirstRetry and LastRetry are the waits after writes that failed.
	FirstRetry, LastRetry = 200 * time.Millisecond, 5 * time.Second
)

// Recorders store the results of all chunks that a worker runs, those of one map
// together, so that a map leaves few objects.
type Recorders struct {
	// Failed, if given before the first Join, is called at every write that fails.
	Failed func()

	store *store.Store
	mu    sync.Mutex
	open  map[string]*recorder
}

func New(s *store.Store) *Recorders {
	return &Recorders{Failed: func() {}, store: s, open: map[string]*recorder{}}
}

// recorder stores the results of one map. Its goroutine runs while chunks do.
type recorder struct {
	to    *store.Appender
	every time.Duration
	// hurry is the least pause between two writes.
	hurry time.Duration

	mu      sync.Mutex
	streams map[*Stream]bool
	running bool
	left    time.Time
	// waiting is how many bytes are not stored, taken how many of them are being written.
	// freed is closed, and made anew, when there are fewer.
	waiting, taken int
	freed          chan struct{}
	// writing is when the write under way began, failed why the last one did.
	writing time.Time
	failed  error
	count   func() // of writes that failed
	// wake is sent to when a write should not wait for its time.
	wake chan struct{}
}

type Stream struct {
	r *recorder
	// fresh are new results as they came; bytes counts them and the taken ones.
	fresh        []gpumux.Result
	bytes, taken int
	// empty is there while Flush waits, and closed when all is stored.
	empty chan struct{}
}

// Join begins a chunk's stream, and returns where its results will lie. Feeds is as in
// store.Appender.
func (rs *Recorders) Join(folder, claim string, feeds bool) (*Stream, store.Position, error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	maps.DeleteFunc(rs.open, func(_ string, r *recorder) bool { return r.idle() })
	key := folder + "\x00" + claim
	r := rs.open[key]
	if r == nil {
		in, err := rs.store.Folder(folder)
		if err != nil {
			return nil, store.Position{}, err
		}
		r = &recorder{
			to: in.Append(), every: serverEvery, hurry: hurryEvery, streams: map[*Stream]bool{},
			freed: make(chan struct{}), wake: make(chan struct{}, 1), count: rs.Failed,
		}
		r.to.Feeds = feeds
		if rs.store.Objects.OnDisk() {
			r.every, r.hurry = diskEvery, 0
		}
		rs.open[key] = r
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &Stream{r: r}
	r.streams[s] = true
	if !r.running {
		r.running = true
		go r.run()
	}
	return s, r.to.At(), nil
}

// Leave ends a stream. It drops what is not stored.
func (s *Stream) Leave() {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting -= s.bytes - s.taken
	r.signalRoom()
	delete(r.streams, s)
	if r.left = time.Now(); len(r.streams) == 0 {
		r.wakeUp()
	}
}

// idle reports whether the next chunk of the map is not to be expected any more.
func (r *recorder) idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.streams) == 0 && time.Since(r.left) > recorderIdle
}

func (r *recorder) signalRoom() {
	close(r.freed)
	r.freed = make(chan struct{})
}

func (r *recorder) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// At is where the results lie that are stored next.
func (s *Stream) At() store.Position { return s.r.to.At() }

func (s *Stream) Put(result gpumux.Result) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	s.fresh = append(s.fresh, result)
	s.bytes += result.Weight()
	r.waiting += result.Weight()
	if r.waiting > Unstored/4 && r.failed == nil {
		r.wakeUp()
	}
}

// Flush returns when all that was put is stored, or with ctx.
func (s *Stream) Flush(ctx context.Context) error {
	r := s.r
	r.mu.Lock()
	if s.bytes == 0 {
		r.mu.Unlock()
		return nil
	}
	if s.empty == nil {
		s.empty = make(chan struct{})
	}
	empty := s.empty
	r.wakeUp()
	r.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed != nil {
		return fmt.Errorf("store what has finished: %w", r.failed)
	}
	return context.Cause(ctx)
}

// AwaitRoom waits while too many bytes of results wait for the store, so that memory
// stays bounded while the store is slow or away. A chunk without bytes of its own does
// not wait; its results may travel inline. The error is why ctx ended.
func (s *Stream) AwaitRoom(ctx context.Context) error {
	r := s.r
	for {
		r.mu.Lock()
		full, freed := r.waiting > Unstored && s.bytes > 0, r.freed
		r.mu.Unlock()
		if !full {
			return nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// WaitingFor says what results wait for. It is empty if they do not wait.
func (s *Stream) WaitingFor() string {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	switch took := time.Since(s.r.writing); {
	case s.bytes == 0:
		return ""
	case s.r.failed != nil:
		return "results wait for the store: " + s.r.failed.Error()
	case !s.r.writing.IsZero() && took > longWrite:
		return fmt.Sprintf("results wait for the store: a write has taken %s so far", took.Round(time.Second))
	}
	return ""
}

func (r *recorder) run() {
	looked, delay := time.Now(), time.Duration(0)
	var wrote time.Time
	for !r.finished() {
		select {
		case <-time.After(time.Until(looked.Add(max(r.every, delay)))):
		case <-r.wake:
			time.Sleep(time.Until(wrote.Add(max(r.hurry, delay))))
		}
		looked = time.Now()
		if !r.handOver() {
			continue
		}
		wrote = looked
		err := r.to.Flush(context.Background())
		r.settle(err)
		if delay = min(max(FirstRetry, 2*delay), LastRetry); err == nil {
			delay = 0
		}
	}
}

// finished reports whether no chunk runs, so that the goroutine ends.
func (r *recorder) finished() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.streams) == 0 {
		r.running = false
	}
	return !r.running
}

// handOver gives the appender what may be written, and reports whether there is any.
func (r *recorder) handOver() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.streams {
		for _, result := range s.fresh {
			if err := r.to.Add(result); err != nil {
				// No store takes it, now or later.
				result.Value, result.Arrays, result.Fault = nil, nil, &gpumux.Fault{Kind: gpumux.FaultTaskError, Op: "run", Message: err.Error()}
				_ = r.to.Add(result)
			}
		}
		r.taken += s.bytes - s.taken
		clear(s.fresh) // the values are the appender's
		s.fresh, s.taken = s.fresh[:0], s.bytes
	}
	if r.taken > 0 {
		r.writing = time.Now()
	}
	return r.taken > 0
}

func (r *recorder) settle(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writing, r.failed = time.Time{}, err
	if err != nil {
		r.count()
		return
	}
	for s := range r.streams {
		s.bytes -= s.taken
		s.taken = 0
		if s.empty != nil && s.bytes == 0 {
			close(s.empty)
			s.empty = nil
		}
	}
	r.waiting -= r.taken
	r.taken = 0
	r.signalRoom()
}

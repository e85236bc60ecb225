package activities

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gpumux/gpumux"
)

const (
	// deadlyAlone is how often an item may end a process in which nothing else ran, before the end is its own fault.
	deadlyAlone = 2
	// failedStarts is how often a process may fail to start for a chunk before the map is told.
	failedStarts = 5
	// longWrite is how long a write to the store may take before people are told.
	longWrite = 5 * time.Second
	// keepRecent is how many failures a chunk shows to people.
	keepRecent = 3
)

// memo is what one attempt at a chunk leaves to the next one in its heartbeat.
type memo struct {
	// Results are the finished items of a chunk whose results travel inline.
	Results []gpumux.Result `json:"results,omitempty"`
	// Suspects are the items that a process ended with.
	Suspects map[int64]suspect `json:"suspects,omitempty"`
	// Hunt is the end of the items among which one ended its process together with others in a micro-batch; they are run
	// in halves until it is found. 0 means none.
	Hunt int64 `json:"hunt,omitempty"`
	// Escalate are the items that need the next rung.
	Escalate []int64 `json:"escalate,omitempty"`
	Starts   int     `json:"starts,omitempty"`
	// Peak is what the finished items held.
	Peak *gpumux.Peaks `json:"peak,omitempty"`
	// Waiting says why nothing moves, for people who look at the pending activity.
	Waiting string `json:"waiting,omitempty"`
}

// suspect is what is held against an item.
type suspect struct {
	// Alone counts the processes that it ended with no other item in them.
	Alone int `json:"alone"`
	// Tries counts all processes that ended with it.
	Tries int `json:"tries,omitempty"`
	// Memory says that the last one ended for want of memory.
	Memory bool `json:"memory,omitempty"`
}

// ledger is the state of one attempt at a chunk. The slot's goroutine adds results while the activity's goroutine stores them.
type ledger struct {
	mu    sync.Mutex
	chunk gpumux.Chunk
	memo  memo
	// done marks the items that have a result or are escalated, by position in the chunk.
	done []bool
	// fresh are the results that are not stored yet, waiting their bytes with those being stored. Room is closed and made anew
	// when some were stored.
	fresh   []gpumux.Result
	spare   []gpumux.Result // the memory of those that were stored last
	waiting int
	room    chan struct{}
	// pressed is sent to when so many bytes wait that they should be stored before their time.
	pressed chan struct{}
	// writing is when the write under way began.
	writing time.Time
	bytes   int
	peaks   gpumux.Peaks
	result  gpumux.ChunkResult
}

func newLedger(chunk gpumux.Chunk, m memo) *ledger {
	l := &ledger{chunk: chunk, memo: m, done: make([]bool, chunk.End-chunk.Start), room: make(chan struct{}), pressed: make(chan struct{}, 1)}
	if l.memo.Suspects == nil {
		l.memo.Suspects = map[int64]suspect{}
	}
	l.memo.Waiting = ""
	for _, r := range m.Results {
		l.count(r)
		l.bytes += r.Weight()
		if chunk.Parts != "" {
			l.fresh = append(l.fresh, r)
			l.waiting += r.Weight()
		}
	}
	for _, index := range m.Escalate {
		l.done[index-chunk.Start] = true
	}
	l.result.Escalate = m.Escalate
	l.peaks.Merge(m.Peak)
	l.memo.Peak = nil
	return l
}

// add takes a new result.
func (l *ledger) add(r gpumux.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count(r)
	l.result.Ran++
	l.bytes += r.Weight()
	delete(l.memo.Suspects, r.Index)
	if l.chunk.Parts == "" || l.chunk.Inline {
		l.memo.Results = append(l.memo.Results, r)
	}
	if l.chunk.Parts != "" {
		l.fresh = append(l.fresh, r)
		l.waiting += r.Weight()
		if l.waiting > unstored/4 {
			select {
			case l.pressed <- struct{}{}:
			default:
			}
		}
	}
}

// take gives the results that are not stored yet to whoever stores them, who settles them afterwards.
func (l *ledger) take() []gpumux.Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.fresh) == 0 {
		return nil
	}
	results := l.fresh
	l.fresh, l.spare = l.spare, nil
	l.writing = time.Now()
	return results
}

// settle says what became of results that were taken, and returns how many bytes no longer wait.
func (l *ledger) settle(results []gpumux.Result, stored bool) (settled int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writing = time.Time{}
	if !stored {
		l.fresh = append(results, l.fresh...)
		return 0
	}
	for _, r := range results {
		settled += r.Weight()
	}
	l.waiting -= settled
	clear(results)
	l.spare = results[:0]
	close(l.room)
	l.room = make(chan struct{})
	return settled
}

// unstored is how many bytes of results wait for the store; less is closed when it is fewer.
func (l *ledger) unstored() (bytes int, less <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting, l.room
}

func (l *ledger) count(r gpumux.Result) {
	l.done[r.Index-l.chunk.Start] = true
	if r.Fault == nil {
		l.result.Succeeded++
		return
	}
	l.result.Failed++
	if l.result.Faults == nil {
		l.result.Faults = map[gpumux.Kind]int64{}
	}
	l.result.Faults[r.Fault.Kind]++
	if len(l.result.Recent) < keepRecent {
		short := *r.Fault
		short.Traceback, short.Tail, short.Index = "", "", &r.Index
		l.result.Recent = append(l.result.Recent, gpumux.Result{Index: r.Index, Fault: &short})
	}
}

// next returns the spans of items to run in the next call: one suspect alone, on a whole device if it has run out of memory
// alone already, or half of those among which the culprit is, or everything up to the next suspect.
func (l *ledger) next() (spans []gpumux.Span, alone, whole bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	hunted := l.hunted()
	if hunted == 0 {
		l.memo.Hunt = 0
	}
	room := int64(len(l.done))
	if hunted > 0 {
		room = max(1, hunted/2)
	}
	for at, done := range l.done {
		index := l.chunk.Start + int64(at)
		if done {
			continue
		}
		if s, suspected := l.memo.Suspects[index]; suspected {
			if len(spans) == 0 {
				return []gpumux.Span{{Start: index, End: index + 1}}, true, s.Memory && s.Alone > 0
			}
			break
		}
		if room--; room < 0 {
			break
		}
		if n := len(spans); n > 0 && spans[n-1].End == index {
			spans[n-1].End++
		} else {
			spans = append(spans, gpumux.Span{Start: index, End: index + 1})
		}
	}
	return spans, hunted == 1, false
}

// hunted is how many items are still among those that the culprit is one of.
func (l *ledger) hunted() (n int64) {
	for i := l.chunk.Start; i < l.memo.Hunt; i++ {
		if !l.done[i-l.chunk.Start] {
			n++
		}
	}
	return n
}

// hunt narrows the items among which the culprit is to the first n unfinished ones of the spans.
func (l *ledger) hunt(spans []gpumux.Span, n int) {
	for _, span := range spans {
		for i := span.Start; i < span.End && n > 0; i++ {
			if !l.done[i-l.chunk.Start] {
				l.memo.Hunt = i + 1
				n--
			}
		}
	}
}

// blame books a death against the first item of the spans without a result and says whether the item is judged: then it has
// its fault as result, or is escalated.
func (l *ledger) blame(spans []gpumux.Span, fault *gpumux.Fault) (index int64, verdict string) {
	l.mu.Lock()
	index = -1
	for _, span := range spans {
		for i := span.Start; i < span.End && index < 0; i++ {
			if !l.done[i-l.chunk.Start] {
				index = i
			}
		}
	}
	if index < 0 {
		l.mu.Unlock()
		return -1, ""
	}
	if fault.Batch > 1 {
		l.hunt(spans, fault.Batch)
		l.mu.Unlock()
		return index, ""
	}
	s := l.memo.Suspects[index]
	s.Memory = fault.Kind.Memory()
	s.Tries++
	if fault.Alone {
		s.Alone++
	}
	l.memo.Suspects[index] = s
	deaths := s.Alone
	if deaths >= deadlyAlone && fault.Kind.Memory() && l.chunk.Larger {
		delete(l.memo.Suspects, index)
		l.memo.Escalate = append(l.memo.Escalate, index)
		l.result.Escalate = l.memo.Escalate
		l.done[index-l.chunk.Start] = true
		l.mu.Unlock()
		return index, "goes to the next pool of the ladder"
	}
	l.mu.Unlock()
	if deaths >= deadlyAlone {
		recorded := *fault
		recorded.Attempts = s.Tries
		if fault.Kind == gpumux.Budget {
			l.peak(fault.Peak, fault.Budget)
		}
		l.add(gpumux.Result{Index: index, Fault: &recorded})
		return index, "recorded as failed"
	}
	return index, ""
}

// escalateRest moves every unfinished item to the next rung.
func (l *ledger) escalateRest() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for at, done := range l.done {
		if !done {
			l.done[at] = true
			l.memo.Escalate = append(l.memo.Escalate, l.chunk.Start+int64(at))
		}
	}
	l.result.Escalate = l.memo.Escalate
}

// snapshot is the memo for a heartbeat. Results that were stored, or grew too large, are not in it.
func (l *ledger) snapshot() memo {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.memo
	if l.peaks.Items() > 0 {
		m.Peak = &gpumux.Peaks{}
		m.Peak.Merge(&l.peaks)
	}
	m.Results, m.Escalate, m.Suspects = slices.Clone(m.Results), slices.Clone(m.Escalate), maps.Clone(m.Suspects)
	if l.chunk.Parts != "" && !l.inlineLocked() {
		m.Results = nil
	}
	if took := time.Since(l.writing); m.Waiting == "" && !l.writing.IsZero() && took > longWrite {
		m.Waiting = fmt.Sprintf("results wait for the store: a write has taken %s so far", took.Round(time.Second))
	}
	return m
}

// inline says that the results travel through the history: they were asked to and are still small.
func (l *ledger) inline() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inlineLocked()
}

func (l *ledger) inlineLocked() bool { return l.chunk.Inline && l.bytes <= inlineResults }

func (l *ledger) wait(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.memo.Waiting = why
}

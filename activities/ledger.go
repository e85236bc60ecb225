package activities

import (
	"maps"
	"slices"
	"sync"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/store"
)

const (
	// deadlyAlone is how often an item may end a process in which nothing else ran, before the end is its own fault.
	deadlyAlone = 2
	// failedStarts is how often a process may fail to start for a chunk before the fault is the map's.
	failedStarts = 5
	// mostSpared is how often in a row a chunk is tried again for what no item is to blame for, before it is booked like any fault. With
	// Temporal's growing delay that takes about four minutes.
	mostSpared = 30
	// mostRecent is how many failures a chunk shows to people.
	mostRecent = 3
)

// memo is what one attempt at a chunk leaves to the next one in its heartbeat.
type memo struct {
	// Results are the finished items of a chunk whose results travel inline.
	Results []gpumux.Result `json:"results,omitempty"`
	// Suspects are the items that a process ended with.
	Suspects map[int64]suspect `json:"suspects,omitempty"`
	// Written is where this attempt and those before store what finishes.
	Written []store.Written `json:"written,omitempty"`
	// Hunt is how many of the chunk's items, from its first on, hold the one that ended its process together with others in a
	// micro-batch; they are run in halves until it is found. 0 means none.
	Hunt int64 `json:"hunt,omitempty"`
	// Escalate are the items that need the next rung.
	Escalate gpumux.Runs `json:"escalate,omitempty"`
	// Again are the items that raised and are to be tried after a pause.
	Again  gpumux.Runs `json:"again,omitempty"`
	Starts int         `json:"starts,omitempty"`
	// Spared is how often in a row the worker or its device failed and no item finished; Avoid are the devices on which an item died
	// since one finished, and which may be to blame.
	Spared int      `json:"spared,omitempty"`
	Avoid  []string `json:"avoid,omitempty"`
	// Edition is the edition of the code that items have run with, Elsewhere how often a worker did not have it.
	Edition   string `json:"edition,omitempty"`
	Elsewhere int    `json:"elsewhere,omitempty"`
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

// stream takes results on their way into the store, and lets them be written when it is released.
type stream interface {
	Put(gpumux.Result)
	Release()
}

// ledger is the state of one attempt at a chunk. The slot's goroutine adds results while others ask.
type ledger struct {
	mu    sync.Mutex
	chunk contract.Chunk
	memo  memo
	// items are the chunk's. before[i] is how many of them lie before run i.
	items  gpumux.Runs
	before []int64
	// done marks the items that have a result or are escalated, by position in the chunk.
	done []bool
	// stream takes the results on their way into the store; nil where they travel inline only.
	stream stream
	// direct takes the results that go nowhere else; nil in a map.
	direct func(gpumux.Result)
	// labels are those of the items that were given to a slot and have no result.
	labels map[int64]label
	// acknowledged is set when the server knows where the stream leads.
	acknowledged bool
	bytes        int
	peaks        gpumux.Peaks
	result       contract.ChunkResult
}

func newLedger(chunk contract.Chunk, items gpumux.Runs, m memo) *ledger {
	l := &ledger{chunk: chunk, items: items, memo: m}
	n := int64(0)
	for _, run := range items {
		l.before = append(l.before, n)
		n += run.Len()
	}
	l.done = make([]bool, n)
	if l.memo.Suspects == nil {
		l.memo.Suspects = map[int64]suspect{}
	}
	l.memo.Waiting = ""
	l.memo.Hunt = min(l.memo.Hunt, n)
	for _, r := range m.Results {
		l.count(r.Index, r.Fault)
		l.bytes += r.Weight()
	}
	for _, run := range slices.Concat(m.Escalate, m.Again) {
		for i := run.Start; i < run.End; i++ {
			if at, ok := l.at(i); ok {
				l.done[at] = true
			}
		}
	}
	l.peaks.Merge(m.Peak)
	l.memo.Peak = nil
	return l
}

// at is an item's position in the chunk.
func (l *ledger) at(index int64) (int64, bool) {
	run, inside := l.items.Find(index)
	if !inside {
		return 0, false
	}
	return l.before[run] + index - l.items[run].Start, true
}

// each calls f with the position and the index of every item in order, until f returns false.
func (l *ledger) each(f func(at, index int64) bool) {
	for i, run := range l.items {
		for index := run.Start; index < run.End; index++ {
			if !f(l.before[i]+index-run.Start, index) {
				return
			}
		}
	}
}

// onlyInline reports whether results can travel through the history alone.
func (l *ledger) onlyInline() bool { return l.chunk.Parts == "" && l.direct == nil }

// restore counts a result that an earlier attempt stored, and reports whether it is new.
func (l *ledger) restore(index int64, kind gpumux.Kind) bool {
	at, ok := l.at(index)
	if !ok || l.done[at] {
		return false
	}
	var fault *gpumux.Fault
	if kind != "" {
		fault = &gpumux.Fault{Kind: kind}
	}
	l.count(index, fault)
	return true
}

// storeTo sends results to the store from now on. Those that earlier attempts held inline come first.
func (l *ledger) storeTo(to stream, written store.Written) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stream = to
	for _, r := range l.memo.Results {
		to.Put(r)
	}
	known := slices.ContainsFunc(l.memo.Written, func(w store.Written) bool {
		return w.Writer == written.Writer && w.Number <= written.Number
	})
	if !known {
		l.memo.Written = append(l.memo.Written, written)
	}
}

// add adds a new result.
func (l *ledger) add(r gpumux.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r = l.labeled(r)
	l.count(r.Index, r.Fault)
	if r.Fault != nil {
		l.addRecent(r)
	}
	l.result.Ran++
	l.memo.Spared, l.memo.Avoid = 0, nil
	inline := l.inlineLocked()
	l.bytes += r.Weight()
	delete(l.memo.Suspects, r.Index)
	switch {
	case l.direct != nil:
		l.direct(r)
	case l.chunk.Parts == "" || l.chunk.Inline:
		l.memo.Results = append(l.memo.Results, r)
	}
	if l.stream != nil {
		l.stream.Put(r)
		if inline && l.acknowledged && !l.inlineLocked() {
			l.stream.Release()
		}
	}
}

// acknowledge notes that the server knows where the stream leads, so that results may go there.
func (l *ledger) acknowledge() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.acknowledged = true; l.stream != nil && !l.inlineLocked() {
		l.stream.Release()
	}
}

func (l *ledger) count(index int64, fault *gpumux.Fault) {
	at, ok := l.at(index)
	if !ok {
		return
	}
	l.done[at] = true
	if fault == nil {
		l.result.Succeeded++
		return
	}
	l.result.Failed++
	if l.result.Faults == nil {
		l.result.Faults = map[gpumux.Kind]int64{}
	}
	l.result.Faults[fault.Kind]++
}

// addRecent keeps a failure for people to look at.
func (l *ledger) addRecent(r gpumux.Result) {
	if len(l.result.Recent) < mostRecent {
		short := *r.Fault
		short.Traceback, short.Tail, short.Index = "", "", &r.Index
		l.result.Recent = append(l.result.Recent, gpumux.Result{Index: r.Index, Fault: &short, Key: r.Key})
	}
}

// next returns the items of the next call: one suspect alone, half of the hunted items, or all up to the next suspect. A suspect that
// has run out of memory alone gets a whole device.
func (l *ledger) next() (items gpumux.Runs, alone, whole bool) {
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
	l.each(func(at, index int64) bool {
		if l.done[at] {
			return true
		}
		if s, suspected := l.memo.Suspects[index]; suspected {
			if len(items) == 0 {
				items.Add(index)
				alone, whole = true, s.Memory && s.Alone > 0
			}
			return false
		}
		if room--; room < 0 {
			return false
		}
		items.Add(index)
		return true
	})
	return items, alone || hunted == 1, whole
}

// hunted is how many unfinished items the hunt is left with.
func (l *ledger) hunted() (n int64) {
	for _, done := range l.done[:l.memo.Hunt] {
		if !done {
			n++
		}
	}
	return n
}

// hunt narrows the items among which the culprit is to the first n unfinished ones of those that ran.
func (l *ledger) hunt(ran gpumux.Runs, n int) {
	for _, run := range ran {
		for i := run.Start; i < run.End && n > 0; i++ {
			if at, ok := l.at(i); ok && !l.done[at] {
				l.memo.Hunt = at + 1
				n--
			}
		}
	}
}

// first is the first of the items that ran which has no result, and its position.
func (l *ledger) first(ran gpumux.Runs) (index, at int64, ok bool) {
	for _, run := range ran {
		for i := run.Start; i < run.End; i++ {
			if at, ok := l.at(i); ok && !l.done[at] {
				return i, at, true
			}
		}
	}
	return -1, 0, false
}

// blame books a death against the first item that ran and has no result. If that decides about the item, it returns a verdict: the
// fault became its result, or the item is escalated.
func (l *ledger) blame(ran gpumux.Runs, fault *gpumux.Fault) (index int64, verdict string) {
	l.suspect(fault)
	l.mu.Lock()
	index, at, ok := l.first(ran)
	if !ok {
		l.mu.Unlock()
		return -1, ""
	}
	if fault.Batch > 1 {
		l.hunt(ran, fault.Batch)
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
		l.escalate(index, at)
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
	l.each(func(at, index int64) bool {
		if !l.done[at] {
			l.escalate(index, at)
		}
		return true
	})
}

func (l *ledger) escalate(index, at int64) {
	l.done[at] = true
	l.memo.Escalate.Add(index)
}

// snapshot is the memo for a heartbeat. It leaves out results that are stored or have grown too large.
func (l *ledger) snapshot(waiting string) memo {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.memo
	if l.peaks.Items() > 0 {
		m.Peak = &gpumux.Peaks{}
		m.Peak.Merge(&l.peaks)
	}
	m.Results, m.Escalate, m.Suspects = slices.Clone(m.Results), slices.Clone(m.Escalate), maps.Clone(m.Suspects)
	m.Again = slices.Clone(m.Again)
	m.Written, m.Avoid = slices.Clone(m.Written), slices.Clone(m.Avoid)
	if l.chunk.Parts != "" && !l.inlineLocked() {
		m.Results = nil
	}
	m.Waiting = waiting
	return m
}

// inline reports whether the results travel through the history: they were asked to and are still small.
func (l *ledger) inline() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inlineLocked()
}

func (l *ledger) inlineLocked() bool { return l.chunk.Inline && l.bytes <= inlineResults }

// peak adds the memory that an item held at its peak, and its slot's budget, in bytes.
func (l *ledger) peak(held, budget int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.peaks.Add(held)
	l.peaks.Budget = max(l.peaks.Budget, gpumux.Size(budget))
}

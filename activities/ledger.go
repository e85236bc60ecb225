package activities

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"sync"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/items"
	"github.com/gpumux/gpumux/store"
)

const (
	// maxRecent is how many failures a chunk shows to people.
	maxRecent = 3
	// inlineResults is the most bytes of results that a chunk returns through the history.
	inlineResults = 256 << 10
)

// ledger is the state of one attempt at a chunk. The slot's goroutine adds results while
// others ask.
type ledger struct {
	mu    sync.Mutex // guards what follows
	chunk contract.Chunk
	memo  memo
	board board
	// stream takes the results on their way into the store; nil where they travel inline
	// only.
	stream stream
	// direct takes the results that go nowhere else; nil in a map.
	direct func(gpumux.Result)
	// onlyInline: results can travel through the history alone.
	onlyInline bool
	// labels are those of the items that were given to a slot and have no result.
	labels map[int64]label
	// acknowledged: the server knows where the stream leads.
	acknowledged bool
	// full: further results would not fit the history. ended: more items failed than may.
	full   bool
	ended  bool
	bytes  int
	peaks  gpumux.Peaks
	result contract.ChunkResult
}

// label is the part of an item that is copied into its result.
type label struct{ key, item json.RawMessage }

func newLedger(chunk contract.Chunk, runs contract.Runs, m memo) *ledger {
	l := &ledger{chunk: chunk, board: newBoard(runs), memo: m, onlyInline: chunk.Parts == "", labels: map[int64]label{}}
	if l.memo.Suspects == nil {
		l.memo.Suspects = map[int64]suspect{}
	}
	l.memo.Waiting = ""
	l.memo.Hunt = max(0, min(l.memo.Hunt, int64(len(l.board.done))))
	for _, r := range m.Results {
		l.count(r)
		l.bytes += r.Weight()
	}
	for at := range l.board.open(slices.Concat(m.Escalate, m.Retry)) {
		l.board.done[at] = true
	}
	l.peaks.Merge(m.Peak)
	l.memo.Peak = nil
	return l
}

// inline reports whether the results travel through the history: they were asked to and
// are still small.
func (l *ledger) inline() bool { return l.chunk.Inline && l.bytes <= inlineResults }

// restore counts a result that an earlier attempt stored. What is stored stays stored:
// this attempt's results join it there.
func (l *ledger) restore(index int64, kind gpumux.Kind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.board.at(index); !ok || l.board.done[at] {
		return
	}
	r := gpumux.Result{Index: index}
	if kind != "" {
		r.Fault = &gpumux.Fault{Kind: kind}
	}
	l.count(r)
	l.chunk.Inline = false
}

// storeTo sends results to the store from now on. Those that earlier attempts held inline
// come first.
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

// acknowledge notes that the server knows where the stream leads, so that results may go
// there.
func (l *ledger) acknowledge() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.acknowledged = true; l.stream != nil && !l.inline() {
		l.stream.Release()
	}
}

// next is the next call: one suspect alone, half of the hunted items, or all up to the
// next suspect. A suspect that has run out of memory alone gets a whole device. It has no
// items when all are done, further results would not fit the history, or more items
// failed than may.
func (l *ledger) next() (o order) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full || l.ended {
		return o
	}
	o.avoid, o.edition = slices.Clone(l.memo.Avoid), cmp.Or(l.memo.Edition, l.chunk.Edition)
	room, hunted := int64(len(l.board.done)), int64(0)
	for _, done := range l.board.done[:l.memo.Hunt] {
		if !done {
			hunted++
		}
	}
	if hunted == 0 {
		l.memo.Hunt = 0
	} else {
		room, o.clean = max(1, hunted/2), hunted == 1
	}
	if l.onlyInline {
		room = min(room, l.fitting())
	}
	for _, index := range l.board.open(l.board.items) {
		s, suspected := l.memo.Suspects[index]
		if room--; room < 0 || suspected && len(o.items) > 0 {
			break
		}
		o.items.Add(index)
		if suspected {
			o.clean, o.whole = true, s.Memory && s.Alone > 0
			break
		}
	}
	return o
}

// fitting is how many items may run before it is clear that their results fit the
// history.
func (l *ledger) fitting() int64 {
	items := int64(len(l.memo.Results))
	if items == 0 {
		return 1
	}
	return max(1, min(items*8, int64(inlineResults-l.bytes)*items/int64(2*l.bytes)))
}

// ran notes the edition of a process before it runs items.
func (l *ledger) ran(edition string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.memo.Edition = edition
}

// take is the item in what a source gives, about to run. It notes the item's label.
func (l *ledger) take(index int64, raw json.RawMessage) (json.RawMessage, error) {
	item, of := raw, label{}
	if l.chunk.Source != nil {
		var err error
		if item, of.key, err = items.Unwrap(*l.chunk.Source, raw); err != nil {
			return nil, err
		}
	}
	own, whole := contract.Label(item, l.chunk.Key, l.chunk.WithItem)
	if own != nil {
		of.key = own
	}
	of.key, of.item = bytes.Clone(of.key), whole
	if of.key != nil || of.item != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.labels[index] = of
	}
	return item, nil
}

// add books a finished item, and returns its result as it is kept. It returns later where
// the item raised and is tried again after a pause, and ended where it was one failure
// too many.
func (l *ledger) add(done Done) (r gpumux.Result, later, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r = done.Result; done.Peak > 0 {
		l.peaks.Add(done.Peak)
		l.peaks.Budget = max(l.peaks.Budget, gpumux.Size(done.Budget))
	}
	l.result.Batch = max(l.result.Batch, int64(done.Batch))
	if at, ok := l.board.at(r.Index); ok && r.Fault != nil && l.chunk.Backoff {
		if r.Fault.Attempts += l.chunk.Tries; r.Fault.Attempts < l.chunk.Attempts {
			l.board.done[at] = true
			l.memo.Retry.Add(r.Index)
			l.result.Ran++
			l.memo.absolve(r.Index)
			return r, true, false
		}
	}
	r = l.book(r)
	return r, false, l.ended
}

// book counts a new result and sends it on its way.
func (l *ledger) book(r gpumux.Result) gpumux.Result {
	if l.onlyInline && len(r.Value) > largestResult {
		r.Fault, r.Value = tooLarge(l.chunk.Task, len(r.Value)), nil
	}
	if of, noted := l.labels[r.Index]; noted {
		r.Key, r.Item = of.key, of.item
		delete(l.labels, r.Index)
	}
	l.count(r)
	if r.Fault != nil && len(l.result.Recent) < maxRecent {
		short := *r.Fault
		short.Traceback, short.Tail, short.Index = "", "", &r.Index
		l.result.Recent = append(l.result.Recent, gpumux.Result{Index: r.Index, Fault: &short, Key: r.Key})
	}
	l.result.Ran++
	l.memo.absolve(r.Index)
	inline := l.inline()
	l.bytes += r.Weight()
	l.full = l.onlyInline && l.bytes > inlineResults
	switch {
	case l.direct != nil:
		l.direct(r)
	case l.chunk.Parts == "" || l.chunk.Inline:
		l.memo.Results = append(l.memo.Results, r)
	}
	if l.stream != nil {
		l.stream.Put(r)
		if inline && l.acknowledged && !l.inline() {
			l.stream.Release()
		}
	}
	return r
}

// count counts a result.
func (l *ledger) count(r gpumux.Result) {
	at, ok := l.board.at(r.Index)
	if !ok {
		return
	}
	l.board.done[at] = true
	if r.Fault == nil {
		l.result.Succeeded++
		return
	}
	l.result.Failed++
	l.ended = l.chunk.FailFast || l.chunk.MayFail != nil && l.result.Failed > *l.chunk.MayFail
	if l.result.Faults == nil {
		l.result.Faults = map[gpumux.Kind]int64{}
	}
	l.result.Faults[r.Fault.Kind]++
}

// spare counts a failure of the worker or its device, and reports whether the chunk is to
// be tried again for it.
func (l *ledger) spare(fault *gpumux.Fault) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.memo.Spared++; l.memo.Spared >= maxSpared {
		return false
	}
	l.memo.suspect(fault)
	return true
}

// elsewhere counts how often a worker did not have the chunk's edition.
func (l *ledger) elsewhere() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.memo.Elsewhere++
	return l.memo.Elsewhere
}

// unstarted counts how often a process did not start.
func (l *ledger) unstarted(fault *gpumux.Fault) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.memo.suspect(fault)
	l.memo.Starts++
	return l.memo.Starts
}

// blame books a death against the first item that ran and has no result. If that decides
// about the item, it returns a verdict: the fault became its result, or the item is
// escalated.
func (l *ledger) blame(ran contract.Runs, fault *gpumux.Fault) (index int64, verdict string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.memo.suspect(fault)
	at := int64(-1)
	for at, index = range l.board.open(ran) {
		break
	}
	if at < 0 {
		return -1, ""
	}
	if fault.Batch > 1 {
		// The culprit is among the first items of the batch.
		left := fault.Batch
		for last := range l.board.open(ran) {
			l.memo.Hunt = last + 1
			if left--; left == 0 {
				break
			}
		}
		return index, ""
	}
	s := l.memo.accuse(index, fault)
	switch {
	case s.Alone < deadlyAlone:
		return index, ""
	case s.Memory && l.chunk.Larger:
		delete(l.memo.Suspects, index)
		l.board.done[at] = true
		l.memo.Escalate.Add(index)
		return index, "goes to the next pool of the ladder"
	}
	recorded := *fault
	recorded.Attempts = s.Tries
	if fault.Kind == gpumux.Budget {
		l.peaks.Add(fault.Peak)
		l.peaks.Budget = max(l.peaks.Budget, gpumux.Size(fault.Budget))
	}
	l.book(gpumux.Result{Index: index, Fault: &recorded})
	return index, "recorded as failed"
}

// escalateRest moves every unfinished item to the next rung.
func (l *ledger) escalateRest() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for at, index := range l.board.open(l.board.items) {
		l.board.done[at] = true
		l.memo.Escalate.Add(index)
	}
}

// snapshot is the memo for a heartbeat. It leaves out results that are stored or have
// grown too large.
func (l *ledger) snapshot(waiting string) memo {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.memo.clone()
	if l.peaks.Items() > 0 {
		m.Peak = &gpumux.Peaks{}
		m.Peak.Merge(&l.peaks)
	}
	if l.chunk.Parts != "" && !l.inline() {
		m.Results = nil
	}
	m.Waiting = waiting
	return m
}

// staysInline reports whether the results need not be stored.
func (l *ledger) staysInline() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inline()
}

// finish is the result of the chunk as far as the ledger knows it. A chunk that stopped
// early hands back everything from its first unfinished item on; items run in order.
func (l *ledger) finish() contract.ChunkResult {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.result
	out.Peak, out.Edition = l.peaks.Known(), l.memo.Edition
	out.Escalate, out.Retry = l.memo.Escalate, l.memo.Retry
	if l.chunk.Parts == "" || l.inline() {
		out.Results = l.memo.Results
		slices.SortFunc(out.Results, func(a, b gpumux.Result) int { return cmp.Compare(a.Index, b.Index) })
	}
	out.Covered = int64(len(l.board.done))
	if at := slices.Index(l.board.done, false); at >= 0 {
		out.Covered = int64(at)
	}
	return out
}

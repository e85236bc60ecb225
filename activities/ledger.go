package activities

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/recovery"
	"github.com/gpumux/gpumux/internal/store"
)

const (
	maxRecent = 3
	// inlineResults is the most bytes of results that travel inline.
	inlineResults = 256 << 10
)

// ledger is the state of one attempt at a chunk. The slot's goroutine adds results while
// others ask.
type ledger struct {
	mu    sync.Mutex // guards what follows
	chunk contract.Chunk
	memo  memo
	board board
	limit limit
	// put takes the results; nil: they travel inline, and results has them.
	put     func(gpumux.Result)
	results []gpumux.Result
	// labels has those items that were given to a slot and have no result.
	labels  map[int64]label
	tooMany bool
	bytes   int
	// began is when the call under way had its first item, and a process for it. answered
	// says that an item of the call has ended.
	began    time.Time
	answered bool
	// process is the one that the latest call has, or had. met gets each; nil: nobody does.
	process calls.Process
	met     func(batch, concurrent int)
	// restored are the items that an earlier attempt stored as failed.
	restored contract.Runs
	// guessed: the chunk is handed back to be cut anew.
	guessed bool
	peaks   gpumux.Peaks
	use     gpumux.GPUUse
	result  contract.ChunkResult
}

func newLedger(chunk contract.Chunk, runs contract.Runs, m memo) *ledger {
	l := &ledger{chunk: chunk, board: newBoard(runs), memo: m, labels: map[int64]label{}}
	l.result.Faults = map[gpumux.FaultKind]int64{}
	// A chunk that had faults has no limit: handed back, its history would be lost.
	if m.Empty() {
		l.limit.after = time.Duration(chunk.Limit)
	}
	l.memo.Waiting = ""
	l.memo.Search = max(0, min(l.memo.Search, int64(len(l.board.done))))
	for at := range l.board.open(slices.Concat(m.Escalate, m.Retry)) {
		l.board.done[at] = true
	}
	return l
}

func (l *ledger) restore(index int64, kind gpumux.FaultKind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.board.at(index); !ok || l.board.done[at] {
		return
	}
	r := gpumux.Result{Index: index}
	if kind != "" {
		r.Fault = &gpumux.Fault{Kind: kind}
		l.restored.Add(index)
	}
	l.count(r)
}

// unread are the items of a later stage that need their value of the one before, or may
// have failed there.
func (l *ledger) unread() (runs contract.Runs) {
	for _, index := range l.board.open(l.board.items) {
		runs.Add(index)
	}
	return runs.Union(l.restored)
}

// pass books an item that failed in a stage before, whose result goes on as it is.
func (l *ledger) pass(r gpumux.Result) {
	at, _ := l.board.at(r.Index)
	if l.board.done[at] { // by an earlier attempt
		l.result.Failed--
		l.result.Faults[r.Fault.Kind]--
		l.tooMany = l.chunk.MayFail != nil && l.result.Failed > *l.chunk.MayFail
		return
	}
	l.board.done[at] = true
	l.put(r)
}

// lose gives up items whose value of the stage before is gone.
func (l *ledger) lose(gone func(at int64) bool) {
	for at, index := range l.board.open(l.board.items) {
		if gone(at) {
			l.board.done[at] = true
			l.result.Lost.Add(index)
		}
	}
}

// written are the parts that have the results of all attempts, by where this one's end.
func (l *ledger) written(end store.Position) (parts []contract.Written) {
	for _, p := range l.memo.Written {
		w := contract.Written{Writer: p.Writer, First: p.Number, Last: contract.Unknown}
		if p.Writer == end.Writer {
			w.Last = end.Number
		}
		parts = contract.JoinWritten(parts, []contract.Written{w})
	}
	return parts
}

// storeTo gives put all results from now on; none travels inline.
func (l *ledger) storeTo(put func(gpumux.Result), written store.Position, attempt int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.put = put
	l.memo.addWritten([]store.Position{written})
	l.memo.Attempt = attempt
}

// fitting is how many items may run before it is clear that their results fit inline; 0:
// further ones would not.
func (l *ledger) fitting() int64 {
	items := int64(len(l.results))
	switch {
	case l.put != nil:
		return math.MaxInt64
	case l.bytes > inlineResults:
		return 0
	case items == 0:
		return max(1, min(l.chunk.Together, contract.FirstInline))
	}
	return max(1, min(items*8, int64(inlineResults-l.bytes)*items/int64(2*l.bytes)))
}

// next ends the call under way and returns the items of the next one: one suspect alone,
// half of those that are searched, or all up to the next suspect. A suspect that has run
// out of memory alone gets a whole device. There are no items when all are done, the
// chunk's time is over, or more items failed than may.
func (l *ledger) next() (run contract.Runs, call calls.Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.began.IsZero() && l.process.Concurrent == 0 {
		l.result.Busy += gpumux.Duration(time.Since(l.began))
	}
	l.began, l.answered = time.Time{}, false
	if l.tooMany || l.limit.over() || l.guessed {
		return nil, call
	}
	call.Avoid, call.Edition = slices.Clone(l.memo.Avoid), l.memo.edition(l.chunk)
	if len(l.results) == 0 { // no other attempt would have them
		call.Patience = slotPatience
	}
	room, searched := min(int64(len(l.board.done)), l.fitting()), int64(0)
	for _, done := range l.board.done[:l.memo.Search] {
		if !done {
			searched++
		}
	}
	if searched == 0 {
		l.memo.Search = 0
	} else {
		room, call.Apart = min(room, max(1, searched/2)), true
	}
	for _, index := range l.board.open(l.board.items) {
		s, suspected := l.memo.Suspects[index]
		if room--; room < 0 || suspected && len(run) > 0 {
			break
		}
		run.Add(index)
		if suspected {
			call.Clean, call.Whole = true, s.NeedsDevice()
			break
		}
	}
	call.Len = run.Len()
	return run, call
}

// meet notes the process before it runs items. An error hands the chunk back, if nothing
// of it has run.
func (l *ledger) meet(p calls.Process) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.process, l.memo.Edition = p, p.Edition
	if !l.began.IsZero() && !l.answered {
		l.began = time.Now() // the item waited for the process to load its task
	}
	l.result.Batch, l.result.Concurrent = int64(p.Batch), int64(p.Concurrent)
	l.guessed = l.chunk.Guessed && max(p.Batch, p.Concurrent) > 1 && !slices.Contains(l.board.done, true)
	if l.guessed {
		return errGuessed
	}
	if l.met != nil {
		l.met(p.Batch, p.Concurrent)
	}
	return nil
}

// take returns the item in raw, which is about to run, and notes its label. It returns
// over when the chunk's time is over.
func (l *ledger) take(index int64, raw json.RawMessage) (item json.RawMessage, over bool, err error) {
	item, mark, err := labelOf(l.chunk, raw)
	if err != nil {
		return nil, false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.began.IsZero() {
		l.began = time.Now()
	}
	if mark.key != nil || mark.item != nil {
		l.labels[index] = mark
	}
	return item, l.limit.over(), nil
}

// add books a finished item, and returns its result as it is kept. It returns later where
// the item raised and is tried again after a pause, and ended where it was one failure
// too many.
func (l *ledger) add(done calls.Done) (r gpumux.Result, later, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit.note()
	l.answered = true
	if r = done.Result; done.Peak > 0 {
		l.peaks.Add(done.Peak)
		l.peaks.Budget, l.peaks.GPUs = max(l.peaks.Budget, gpumux.Size(done.Budget)), max(l.peaks.GPUs, done.GPUs)
	}
	if done.Concurrent {
		l.result.Busy += gpumux.Duration(done.Busy)
	}
	if at, ok := l.board.at(r.Index); ok && r.Fault != nil && l.chunk.Backoff && !r.Fault.Final {
		if r.Fault.Attempts += l.chunk.Tries; r.Fault.Attempts < l.chunk.Attempts {
			l.board.done[at] = true
			l.memo.Retry.Add(r.Index)
			l.result.Ran++
			l.memo.Ran(r.Index, l.put != nil)
			return r, true, false
		}
	}
	r = l.book(r)
	return r, false, l.tooMany
}

func (l *ledger) used(use *gpumux.GPUUse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.use.Add(use)
}

func (l *ledger) book(r gpumux.Result) gpumux.Result {
	if l.put == nil && len(r.Value) > contract.LargestResult {
		r.Fault, r.Value = contract.TooLarge(l.chunk.Task, len(r.Value)), nil
	}
	if mark, noted := l.labels[r.Index]; noted {
		r.Key, r.Item = mark.key, mark.item
		delete(l.labels, r.Index)
	}
	l.count(r)
	if r.Fault != nil && len(l.result.Recent) < maxRecent {
		index, short := r.Index, *r.Fault // else every result escapes to the heap
		short.Traceback, short.Tail, short.Index = "", "", &index
		l.result.Recent = append(l.result.Recent, gpumux.Result{Index: r.Index, Fault: &short, Key: r.Key})
	}
	l.result.Ran++
	l.memo.Ran(r.Index, l.put != nil)
	if l.put != nil {
		if l.chunk.Feeds {
			l.result.Bytes += int64(r.Weight())
		}
		l.put(r)
		return r
	}
	l.bytes += excerpt(r).Weight()
	l.results = append(l.results, r)
	return r
}

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
	l.tooMany = l.chunk.MayFail != nil && l.result.Failed > *l.chunk.MayFail
	l.result.Faults[r.Fault.Kind]++
}

func (l *ledger) judge(ran contract.Runs, fault *gpumux.Fault) recovery.Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := recovery.Chunk{Larger: l.chunk.Larger}
	for c.Position, c.Index = range l.board.open(ran) {
		c.Open, c.Under = true, l.board.after(ran, fault.Batch)
		break
	}
	d := l.memo.Next(fault, c)
	switch d.Step {
	case recovery.NextPool:
		l.escalate(contract.Runs{{Start: d.Index, End: d.Index + 1}})
	case recovery.NextPoolAll:
		l.escalate(l.board.items)
	case recovery.Record:
		l.record(d, fault)
	}
	return d
}

func (l *ledger) record(d recovery.Decision, fault *gpumux.Fault) {
	recorded := *fault
	recorded.Attempts = d.Suspect.Tries
	if fault.Kind == gpumux.FaultBudget {
		l.peaks.Add(fault.Peak)
		l.peaks.Budget = max(l.peaks.Budget, gpumux.Size(fault.Budget))
		if fault.Device != "CPU" {
			l.peaks.GPUs = max(l.peaks.GPUs, 1+strings.Count(fault.Device, ","))
		}
	}
	l.book(gpumux.Result{Index: d.Index, Fault: &recorded})
}

func (l *ledger) escalate(items contract.Runs) {
	for at, index := range l.board.open(items) {
		l.board.done[at] = true
		l.memo.Escalate.Add(index)
	}
}

// snapshot returns the memo for a heartbeat. They share nothing that changes.
func (l *ledger) snapshot(waiting string) memo {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.chunk.Feeds {
		l.memo.Finished = l.result.Succeeded + l.result.Failed
	}
	return l.memo.clone(waiting)
}

// finish returns the result of the chunk. A chunk that stopped early hands back
// everything from its first unfinished item on; items begin in order.
func (l *ledger) finish() contract.ChunkResult {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.result
	out.Peak, out.GPU, out.Edition = l.peaks.Known(), l.use.Known(), l.memo.edition(l.chunk)
	out.Escalate, out.Retry = l.memo.Escalate, l.memo.Retry
	out.Results = slices.SortedFunc(slices.Values(l.results), func(a, b gpumux.Result) int { return cmp.Compare(a.Index, b.Index) })
	out.Covered = int64(len(l.board.done))
	if at := slices.Index(l.board.done, false); at >= 0 {
		out.Covered = int64(at)
		switch {
		case l.limit.over() && l.process.Concurrent > 0:
			out.Pace = out.Busy / gpumux.Duration(max(1, out.Ran))
		case l.limit.over():
			out.Pace = gpumux.Duration(l.limit.pace())
		}
	}
	lost, feeds := out.Lost, l.chunk.Feeds && l.put != nil
	out.Lost = nil // those behind the ones that are covered are found again
	for at, index := range l.board.all() {
		switch {
		case at >= out.Covered, !feeds && lost == nil:
			return out
		case lost.Has(index):
			out.Lost.Add(index)
		case feeds && !out.Escalate.Has(index) && !out.Retry.Has(index):
			out.Done.Add(index)
		}
	}
	return out
}

package workflows

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/sizing"
	"github.com/gpumux/gpumux/internal/text"
)

const (
	// endless stands for no limit: the items' own timeout decides how long a chunk may take.
	endless = 10 * 365 * 24 * time.Hour
	// mostRecent is how many of the newest failures a map shows.
	mostRecent = 5
	// inlineChunk bounds the items that one activity carries; the server takes 2 MiB.
	inlineChunk = 256 << 10
)

// engine runs the pieces of one map: it keeps a window of chunks in flight and books
// their results. Its state changes only in the workflow's own coroutines, so replay
// repeats it.
type engine struct {
	id     string
	in     gpumux.MapInput
	rungs  []*rung
	items  []json.RawMessage
	source *contract.Source
	parts  string
	claim  contract.Claim
	inline bool
	// onResults is called with the results of a chunk that came back inline.
	onResults func(workflow.Context, []gpumux.Result) error
	// onChange is called when a chunk has ended.
	onChange func(workflow.Context)

	total  int64
	todo   []contract.Piece
	sizer  sizing.Sizer
	counts contract.Counts
	// most is with how many failures the map goes on; below 0: any number.
	most   int64
	busy   time.Duration
	peaks  gpumux.Peaks
	chunks int64

	inFlight int
	paused   bool
	fault    error
	changed  bool
	recent   []gpumux.Result
	// contact is that of the chunks; see contract.TimeoutOf.
	contact gpumux.Duration
	// drain stops handing out chunks, so that the map can continue as a new run.
	drain func() bool
}

// tooLarge are the types of errors for payloads that the server never takes.
var tooLarge = []string{"payloadSizeError", "TMPRL1103"}

// sortedKeys are the keys of a map in order, so that a replay repeats it.
//
//workflowcheck:ignore
func sortedKeys[V any, K cmp.Ordered](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// newEngine needs a valid input; total is the number of items.
func newEngine(id string, in gpumux.MapInput, total int64) *engine {
	e := &engine{id: id, in: in, total: total, items: in.Items, sizer: sizing.New(in), most: -1}
	e.allowFailures()
	for _, name := range in.Rungs() {
		queue, _ := names.RungQueue(name)
		e.rungs = append(e.rungs, &rung{queue: queue})
	}
	if total > 0 {
		e.todo = []contract.Piece{{Work: contract.Whole(total)}}
	}
	return e
}

// run returns when every item has a result, when the map failed, when more items failed
// than may, when it was cancelled, or when it was drained; in each case no chunk is in
// flight any more.
func (e *engine) run(ctx workflow.Context) error {
	work, cancel := workflow.WithCancel(ctx)
	defer cancel()
	for ctx.Err() == nil && e.fault == nil && !e.failedEnough() {
		draining := e.drain != nil && e.drain()
		for !e.paused && !draining && e.due(workflow.Now(ctx)) == 0 && e.inFlight < e.sizer.Part() {
			piece, likely := e.nextChunk(workflow.Now(ctx))
			e.dispatch(work, piece, likely)
		}
		if e.inFlight == 0 && (draining || len(e.todo) == 0) {
			return nil
		}
		if e.idle(ctx, draining) != nil {
			break
		}
	}
	cancel()
	rest, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	if err := workflow.Await(rest, func() bool { return e.inFlight == 0 }); err != nil {
		return err
	}
	if e.fault != nil {
		return e.fault
	}
	return ctx.Err()
}

// idle waits for a change, or until items that raised may be tried again. While no worker
// is known and there is work, it widens the window if no change comes.
func (e *engine) idle(ctx workflow.Context, draining bool) error {
	e.changed = false
	if pause := e.due(workflow.Now(ctx)); pause > 0 && !e.paused && !draining {
		_, err := workflow.AwaitWithTimeout(ctx, pause, func() bool { return e.changed })
		return err
	}
	wait := e.sizer.Wait()
	if wait == 0 || e.paused || len(e.todo) == 0 {
		return workflow.Await(ctx, func() bool { return e.changed })
	}
	changed, err := workflow.AwaitWithTimeout(ctx, wait, func() bool { return e.changed })
	if err == nil && !changed {
		e.sizer.Widened++
	}
	return err
}

// left is how many items are not handed out.
func (e *engine) left() (items int64) {
	for _, piece := range e.todo {
		items += piece.Len()
	}
	return items
}

// nextChunk cuts the next chunk off the pieces that are due: higher rungs first, because
// they are the stragglers. likely is the expected time of an item; 0: nobody knows.
func (e *engine) nextChunk(now time.Time) (piece contract.Piece, likely time.Duration) {
	at := -1
	for i, piece := range e.todo {
		if !piece.Due.After(now) && (at < 0 || piece.Rung > e.todo[at].Rung) {
			at = i
		}
	}
	piece = e.todo[at]
	size := e.sizer.Size(piece, e.left())
	if e.items != nil {
		size = min(size, e.fits(piece.Runs))
	}
	piece.Work, likely = e.todo[at].Take(size), e.sizer.Pace(piece)
	if e.todo[at].Len() == 0 {
		e.todo = slices.Delete(e.todo, at, at+1)
	}
	return piece, likely
}

// fits is how many of the first items one activity can carry, at least one.
func (e *engine) fits(runs contract.Runs) (items int64) {
	bytes := 0
	for _, run := range runs {
		for i := run.Start; i < run.End; i++ {
			if bytes += len(e.items[i]); bytes > inlineChunk && items > 0 {
				return items
			}
			items++
		}
	}
	return items
}

// summaryOf says of a chunk what it is, for people.
func (e *engine) summaryOf(piece contract.Piece, at int) string {
	summary := e.in.Task + " " + piece.Describe() + " on " + e.in.Rungs()[at]
	if piece.Tries > 0 {
		summary += fmt.Sprintf(", try %d", piece.Tries+1)
	}
	return summary
}

func (e *engine) dispatch(ctx workflow.Context, piece contract.Piece, likely time.Duration) {
	at, within, done := e.hand(ctx, piece.Rung)
	options := workflow.ActivityOptions{
		TaskQueue:           e.rungs[at].queue,
		StartToCloseTimeout: endless,
		HeartbeatTimeout:    contract.TimeoutOf(e.contact),
		WaitForCancellation: true,
		Summary:             text.Plain(e.summaryOf(piece, at)),
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: 100 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: 10 * time.Second,
			NonRetryableErrorTypes: tooLarge,
		},
		Priority: temporal.Priority{PriorityKey: e.in.Priority, FairnessKey: e.in.FairnessKey},
	}
	chunk := contract.Chunk{
		Map: e.id, Task: e.in.Task, Edition: e.in.Edition, Mode: e.in.Mode, Timeout: e.in.Timeout, Attempts: e.in.Attempts,
		Arg: e.in.Arg, FailFast: e.in.FailFast, MayFail: e.mayFail(e.counts.Failed), Backoff: e.in.Backoff > 0, Tries: piece.Tries,
		Work: piece.Work, Source: e.source, Range: e.in.Range, Key: e.in.Key, WithItem: e.in.WithItem,
		Parts: e.parts, Claim: e.claim, Inline: e.inline, Larger: at+1 < len(e.rungs), Limit: gpumux.Duration(e.sizer.Limit(piece)),
	}
	if e.items != nil {
		for _, run := range piece.Runs {
			chunk.Items = append(chunk.Items, e.items[run.Start:run.End]...)
		}
	}
	e.inFlight++
	e.chunks++
	future := workflow.ExecuteActivity(workflow.WithActivityOptions(within, options), contract.RunChunk, chunk)
	workflow.Go(ctx, func(ctx workflow.Context) {
		var result contract.ChunkResult
		err := future.Get(ctx, &result)
		passed := done()
		switch {
		case err != nil && passed:
			e.requeue(ctx, piece)
			err = nil
		case err != nil:
		case chunk.Edition == "" && result.Edition != "" && e.in.Edition != "" && result.Edition != e.in.Edition:
			e.requeue(ctx, piece) // no result of it counts; now the edition to ask for is known
		default:
			err = e.apply(ctx, piece, at, likely, result)
		}
		e.inFlight--
		e.changed = true
		if err != nil && e.fault == nil && !temporal.IsCanceledError(err) {
			e.fault = unwrapFault(err)
		}
		if e.onChange != nil {
			e.onChange(ctx)
		}
	})
}

// apply books the result of a chunk that ran on a rung.
func (e *engine) apply(ctx workflow.Context, piece contract.Piece, at int, likely time.Duration, result contract.ChunkResult) error {
	if err := e.check(piece, result); err != nil {
		return err
	}
	e.in.Edition = cmp.Or(e.in.Edition, result.Edition)
	e.counts.Add(result.Succeeded, result.Failed, result.Faults)
	e.busy += time.Duration(result.Busy)
	e.peaks.Merge(result.Peak)
	usual := gpumux.Duration(cmp.Or(likely, e.sizer.PerItem))
	e.sizer.Learn(result)
	e.contact = cmp.Or(e.contact, result.Contact)
	items := piece.Len()
	if result.Covered < items {
		rest := contract.Piece{Work: piece.After(result.Covered), Rung: piece.Rung, Tries: piece.Tries}
		if piece.Pace > 0 || usual > 0 && result.Pace > sizing.Slack*usual {
			rest.Pace = result.Pace
		}
		e.requeue(ctx, rest)
	} else if piece.Pace > 0 && result.Ran > 0 {
		e.easePace(result.Busy / gpumux.Duration(result.Ran))
	}
	if len(result.Escalate) > 0 && at+1 < len(e.rungs) {
		e.requeue(ctx, contract.Piece{Work: contract.Work{Runs: result.Escalate}, Rung: at + 1, Tries: piece.Tries})
	}
	if len(result.Again) > 0 {
		e.again(ctx, piece, result.Again)
	}
	e.recent = append(e.recent, result.Recent...)
	e.recent = e.recent[max(0, len(e.recent)-mostRecent):]
	if e.in.FailFast && result.Failed > 0 && e.fault == nil {
		for _, failed := range result.Recent {
			return faultError(fmt.Sprintf("item %d failed and the map is to fail fast: %v", failed.Index, failed.Fault), failed.Fault)
		}
		return errors.New("an item failed and the map is to fail fast")
	}
	if e.onResults != nil && len(result.Results) > 0 {
		return e.onResults(ctx, result.Results)
	}
	return nil
}

// easePace lowers the expected time of slow pieces after a chunk of one is done.
func (e *engine) easePace(perItem gpumux.Duration) {
	for i, piece := range e.todo {
		if piece.Pace > perItem {
			e.todo[i].Pace = max(1, (piece.Pace+perItem)/2)
		}
	}
}

// requeue puts a piece back, joined with what it continues.
func (e *engine) requeue(ctx workflow.Context, piece contract.Piece) {
	if piece.Len() == 0 {
		return
	}
	for i := range e.todo {
		if e.todo[i].Rung == piece.Rung && join(&e.todo[i], piece) {
			e.spill(ctx)
			return
		}
	}
	at, _ := slices.BinarySearchFunc(e.todo, piece, func(a, b contract.Piece) int { return cmp.Compare(a.Rung, b.Rung) })
	e.todo = slices.Insert(e.todo, at, piece)
	e.spill(ctx)
}

// join adds a piece to one of the same rung. Slow pieces of different paces stay apart.
func join(to *contract.Piece, piece contract.Piece) bool {
	switch {
	case to.Tries != piece.Tries || !to.Due.Equal(piece.Due):
		return false
	case to.List != nil || piece.List != nil:
		if to.List == nil || piece.List == nil || *to.List != *piece.List || to.Start != piece.End && to.End != piece.Start {
			return false
		}
		to.Start, to.End = min(to.Start, piece.Start), max(to.End, piece.End)
	case to.Pace == 0 && piece.Pace == 0, to.Runs[len(to.Runs)-1].End == piece.Runs[0].Start:
		to.Runs = to.Runs.Union(piece.Runs)
	default:
		return false
	}
	to.Pace = max(to.Pace, piece.Pace)
	return true
}

// mostRuns is how many runs of items a workflow holds itself. More become a work list in
// the store, so that histories and handoffs stay small.
const mostRuns = 1 << 14

// spill moves the piece with the most runs into the store when there are too many.
func (e *engine) spill(ctx workflow.Context) {
	runs, at := 0, 0
	for i, piece := range e.todo {
		if runs += len(piece.Runs); len(piece.Runs) > len(e.todo[at].Runs) {
			at = i
		}
	}
	if runs <= mostRuns || e.parts == "" || e.items != nil {
		return
	}
	piece := e.todo[at]
	e.todo = slices.Delete(e.todo, at, at+1)
	e.inFlight++
	input := contract.ListInput{Parts: e.parts, Runs: piece.Runs}
	workflow.Go(ctx, func(ctx workflow.Context) {
		var work contract.Work
		err := workflow.ExecuteActivity(lightOptions(ctx, "store a work list"), contract.WriteList, input).Get(ctx, &work)
		e.inFlight--
		e.changed = true
		if err == nil {
			piece.Work = work
			e.requeue(ctx, piece)
		} else if e.fault == nil && !temporal.IsCanceledError(err) {
			e.fault = unwrapFault(err)
		}
	})
}

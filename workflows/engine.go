package workflows

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/sizer"
	"github.com/gpumux/gpumux/internal/text"
)

const (
	// endless stands for no limit: the items' own timeout decides how long a chunk may take.
	endless = 10 * 365 * 24 * time.Hour
	// inlineChunk bounds the items that one activity carries; the server takes 2 MiB.
	inlineChunk = 256 << 10
)

// engine runs the pieces of one map: it keeps a window of chunks in flight and books
// their results. Its state changes only in the workflow's own coroutines, so replay
// repeats it.
type engine struct {
	id     string
	in     gpumux.MapInput
	ladder *ladder
	items  []json.RawMessage
	source *contract.Source
	parts  string
	claim  contract.Claim
	inline bool
	// asked says that the caller named the output, so that earlier runs may have left
	// results there.
	asked bool
	// onResults is called with the results of a chunk that came back inline.
	onResults func(workflow.Context, []gpumux.Result) error
	// onChange is called when a chunk has ended.
	onChange func(workflow.Context)

	total int64
	todo  contract.Backlog
	sizer sizer.Sizer
	tally tally

	inFlight int
	paused   bool
	// asking says that no worker of the pool has answered yet.
	asking  bool
	fault   error
	changed bool
	// contact is how long items run on while the server does not answer; see
	// contract.TimeoutOf.
	contact gpumux.Duration
	// drain stops handing out chunks, so that the map can continue as a new run.
	drain func() bool
}

// tooLarge are the types of errors for payloads that the server never takes.
var tooLarge = []string{"payloadSizeError", "TMPRL1103"}

// newEngine needs a valid input; total is the number of items.
func newEngine(id string, in gpumux.MapInput, total int64) *engine {
	e := &engine{id: id, in: in, items: in.Items, sizer: sizer.New(in)}
	e.ladder = newLadder(in, func(ctx workflow.Context) {
		e.changed = true
		if e.onChange != nil {
			e.onChange(ctx)
		}
	})
	e.begin(total)
	return e
}

// begin takes items 0 to total-1 as the work.
func (e *engine) begin(total int64) {
	e.total = total
	e.tally.allow(e.in.MaxFailures.Of(total))
	e.todo.Add(contract.Piece{Work: contract.Whole(total)})
}

// run returns when every item has a result, the map failed, more items failed than may,
// or it was cancelled or drained. Then no chunk is in flight.
func (e *engine) run(ctx workflow.Context) error {
	e.sizer.Inline = e.parts == ""
	work, cancel := workflow.WithCancel(ctx)
	defer cancel()
	for ctx.Err() == nil && e.fault == nil && !e.tally.tooMany(e.tally.counts.Failed) {
		draining := e.drain != nil && e.drain()
		for !e.paused && !draining && e.todo.Due(workflow.Now(ctx)) == 0 && e.inFlight < e.sizer.Part() {
			e.dispatch(work, e.nextChunk(workflow.Now(ctx)))
		}
		if e.inFlight == 0 && (draining || len(e.todo) == 0) {
			return nil
		}
		if e.idle(ctx, draining) != nil {
			break
		}
	}
	cancel()
	if err := settled(ctx, func() bool { return e.inFlight == 0 }); err != nil {
		return err
	}
	if e.fault != nil {
		return e.fault
	}
	return ctx.Err()
}

// settled waits until nothing is in flight, also in a workflow that was cancelled.
func settled(ctx workflow.Context, idle func() bool) error {
	rest, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	return workflow.Await(rest, idle)
}

// idle waits for a change, or until items that raised may be tried again. While no worker
// is known and there is work, it widens the window if no change comes.
func (e *engine) idle(ctx workflow.Context, draining bool) error {
	e.changed = false
	if pause := e.todo.Due(workflow.Now(ctx)); pause > 0 && !e.paused && !draining {
		_, err := workflow.AwaitWithTimeout(ctx, pause, func() bool { return e.changed })
		return err
	}
	wait := e.sizer.Wait()
	if wait == 0 || e.paused || len(e.todo) == 0 {
		return workflow.Await(ctx, func() bool { return e.changed })
	}
	changed, err := workflow.AwaitWithTimeout(ctx, wait, func() bool { return e.changed })
	if err == nil && !changed {
		e.sizer.Widen()
	}
	return err
}

// nextChunk cuts the next chunk off the pieces that are due.
func (e *engine) nextChunk(now time.Time) contract.Piece {
	at := e.todo.First(now)
	size := e.sizer.Size(e.todo[at], e.todo.Items())
	if e.items != nil {
		size = min(size, e.fits(e.todo[at].Runs))
	}
	return e.todo.Take(at, size)
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

// summaryOf describes a chunk for people.
func (e *engine) summaryOf(piece contract.Piece, at int) string {
	summary := e.in.Task + " " + piece.Describe() + " on " + e.ladder.rungs[at].name
	if piece.Tries > 0 {
		summary += fmt.Sprintf(", try %d", piece.Tries+1)
	}
	return summary
}

func (e *engine) dispatch(ctx workflow.Context, piece contract.Piece) {
	perItem := e.sizer.Pace(piece) // 0: nobody knows
	at, within, leave := e.ladder.place(ctx, piece.Rung, piece.Len())
	options := workflow.ActivityOptions{
		TaskQueue:           e.ladder.rungs[at].queue,
		StartToCloseTimeout: endless,
		HeartbeatTimeout:    contract.TimeoutAbreast(e.contact, max(e.inFlight, int(min(e.todo.Items(), int64(e.sizer.Part()))), e.sizer.Share*e.sizer.Part()/4)),
		WaitForCancellation: true,
		Summary:             text.Plain(e.summaryOf(piece, at)),
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: 100 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: 10 * time.Second,
			NonRetryableErrorTypes: tooLarge,
		},
		Priority: fairly(ctx, e.in, e.id),
	}
	chunk := contract.Chunk{
		Map: e.id, Task: e.in.Task, Edition: e.in.Edition, Mode: e.in.Mode, Timeout: e.in.Timeout, Attempts: e.in.Attempts,
		Arg: e.in.Arg, FailFast: e.in.FailFast, MayFail: e.tally.mayFail(e.tally.counts.Failed), Backoff: e.in.Backoff > 0, Tries: piece.Tries,
		Work: piece.Work, Source: e.source, Range: e.in.Range, Key: e.in.Key, WithItem: e.in.WithItem,
		Parts: e.parts, Claim: e.claim, Inline: e.inline, Larger: e.ladder.hasLarger(at), Limit: gpumux.Duration(e.sizer.Limit(piece)),
		Together: e.sizer.Together(), Guessed: !e.sizer.Told && (e.inFlight > 0 || len(e.todo) > 0),
	}
	if e.items != nil {
		for _, run := range piece.Runs {
			chunk.Items = append(chunk.Items, e.items[run.Start:run.End]...)
		}
	}
	e.inFlight++
	e.tally.chunks++
	handed := workflow.Now(ctx)
	future := workflow.ExecuteActivity(workflow.WithActivityOptions(within, options), contract.RunChunk, chunk)
	workflow.Go(ctx, func(ctx workflow.Context) {
		var result contract.ChunkResult
		err := future.Get(ctx, &result)
		passed := leave()
		switch {
		case err != nil && passed:
			e.requeue(ctx, piece)
			err = nil
		case err != nil:
		case chunk.Edition == "" && result.Edition != "" && e.in.Edition != "" && result.Edition != e.in.Edition:
			e.requeue(ctx, piece) // no result of it counts; now the edition to ask for is known
		default:
			e.sizer.LearnShare(workflow.Now(ctx).Sub(handed), time.Duration(result.Held))
			err = e.apply(ctx, piece, at, perItem, chunk.Guessed, result)
		}
		e.inFlight--
		e.changed = true
		e.fail(err)
		if e.onChange != nil {
			e.onChange(ctx)
		}
	})
}

// apply books the result of a chunk that ran on a rung.
func (e *engine) apply(ctx workflow.Context, piece contract.Piece, at int, perItem time.Duration, guessed bool, result contract.ChunkResult) error {
	if err := e.check(piece, guessed, result); err != nil {
		return err
	}
	e.in.Edition = cmp.Or(e.in.Edition, result.Edition)
	e.tally.add(result)
	usual := gpumux.Duration(cmp.Or(perItem, e.sizer.PerItem))
	e.sizer.Learn(result)
	e.contact = cmp.Or(e.contact, result.Contact)
	items := piece.Len()
	if result.Covered < items {
		rest := contract.Piece{Work: piece.After(result.Covered), Rung: piece.Rung, Tries: piece.Tries}
		if piece.Pace > 0 || usual > 0 && result.Pace > sizer.Slack*usual { // much slower items keep a pace of their own
			rest.Pace = result.Pace
		}
		e.requeue(ctx, rest)
	} else if piece.Pace > 0 && result.Ran > 0 {
		e.todo.EasePace(result.Busy / gpumux.Duration(result.Ran))
	}
	if len(result.Escalate) > 0 && e.ladder.hasLarger(at) {
		e.requeue(ctx, contract.Piece{Work: contract.Work{Runs: result.Escalate}, Rung: at + 1, Tries: piece.Tries})
	}
	if len(result.Retry) > 0 {
		e.retryLater(ctx, piece, result.Retry)
	}
	if e.in.FailFast && result.Failed > 0 && e.fault == nil {
		for _, failed := range result.Recent {
			return faultError(fmt.Sprintf("item %d failed and the map is to fail fast: %s", failed.Index, textOf(failed.Fault)), failed.Fault)
		}
		return errors.New("an item failed and the map is to fail fast")
	}
	if e.onResults != nil && len(result.Results) > 0 {
		return e.onResults(ctx, result.Results)
	}
	return nil
}

// maxRuns is how many runs of items a workflow holds itself. More become a work list in
// the store, so that histories and handoffs stay small.
const maxRuns = 1 << 14

// requeue puts a piece back. If there are too many runs then, those of one piece go into
// the store.
func (e *engine) requeue(ctx workflow.Context, piece contract.Piece) {
	e.todo.Add(piece)
	if e.parts == "" || e.items != nil {
		return
	}
	piece, spilled := e.todo.Spill(maxRuns)
	if !spilled {
		return
	}
	e.inFlight++
	input := contract.ListInput{Parts: e.parts, Runs: piece.Runs}
	workflow.Go(ctx, func(ctx workflow.Context) {
		var work contract.Work
		err := workflow.ExecuteActivity(housekeeping(ctx, "store a work list"), contract.WriteList, input).Get(ctx, &work)
		e.inFlight--
		e.changed = true
		if e.fail(err); err == nil {
			piece.Work = work
			e.requeue(ctx, piece)
		}
	})
}

// fail ends the run with an error, unless another has already, or it was cancelled.
func (e *engine) fail(err error) {
	if err != nil && e.fault == nil && !temporal.IsCanceledError(err) {
		e.fault = unwrapFault(err)
	}
}

// retryLater puts back the items of a piece that raised, for another try after a pause.
// Pauses that end at nearly the same time end together, so that many chunks with few such
// items each do not become many pieces.
func (e *engine) retryLater(ctx workflow.Context, piece contract.Piece, items contract.Runs) {
	const steps = 8
	pause := sizer.Pause(time.Duration(e.in.Backoff), piece.Tries)
	step := max(1, pause/steps)
	due := workflow.Now(ctx).Add(pause + step - 1).Truncate(step)
	e.requeue(ctx, contract.Piece{Work: contract.Work{Runs: items}, Rung: piece.Rung, Tries: piece.Tries + 1, Due: due})
}

// check returns an error if a result cannot be that of a piece. Another program or a mock
// may answer RunChunk; it must neither keep a map running for ever nor leave items
// without a result.
func (e *engine) check(piece contract.Piece, guessed bool, r contract.ChunkResult) error {
	wrong := func(format string, args ...any) error {
		return errorOf(&gpumux.Fault{Kind: gpumux.FaultTaskError, Op: "run", Task: e.in.Task,
			Message: fmt.Sprintf("the answer of %s to %s of task %s is impossible: ", contract.RunChunk, piece.Describe(), e.in.Task) + fmt.Sprintf(format, args...)})
	}
	if r.Covered < 0 || r.Covered > piece.Len() {
		return wrong("it covers %d", r.Covered)
	}
	if r.Covered == 0 && !(guessed && r.Ran == 0 && r.Batch+r.Concurrent > 0) && !((e.in.FailFast || e.tally.maxFailures >= 0) && r.Failed > 0) {
		return wrong("it covers none of them, so it did nothing; a finished chunk covers all")
	}
	if e.in.Edition != "" && r.Edition != "" && r.Edition != e.in.Edition {
		return wrong("items ran with edition %.60s of the code, and the map runs with %s", r.Edition, e.in.Edition)
	}
	if len(r.Retry) > 0 && (e.in.Backoff == 0 || piece.Tries+1 >= e.in.Attempts) {
		return wrong("it hands back %d items to be tried again", r.Retry.Len())
	}
	if e.onResults == nil || e.parts != "" {
		return nil
	}
	for _, result := range r.Results {
		if !piece.Runs.Has(result.Index) {
			return wrong("it has a result of item %d", result.Index)
		}
	}
	if told := int64(len(r.Results)) + r.Escalate.Len() + r.Retry.Len(); told < r.Covered {
		return wrong("it has %d results of %d items", told, r.Covered)
	}
	return nil
}

// summary counts the items' outcomes.
func (e *engine) summary() gpumux.Summary {
	return gpumux.Summary{
		Task: e.in.Task, Items: e.total, Succeeded: e.tally.counts.Succeeded, Failed: e.tally.counts.Failed, Faults: e.tally.counts.Faults,
		Busy: gpumux.Duration(e.tally.busy), Chunks: e.tally.chunks, Peak: e.tally.peaks.Known(), PassedOver: e.ladder.passedOver(true),
	}
}

// carry is the state of the engine for another workflow.
func (e *engine) carry() *contract.Carry {
	return &contract.Carry{
		Source: e.source, Claim: e.claim, Todo: e.todo, Items: e.total, Succeeded: e.tally.counts.Succeeded, Failed: e.tally.counts.Failed,
		Faults: e.tally.counts.Faults, Chunks: e.tally.chunks, Busy: gpumux.Duration(e.tally.busy), Pace: e.sizer.Carry(), Contact: e.contact,
		Slots: e.sizer.Slots, Paused: e.paused, Window: e.sizer.Fixed,
		Recent: e.tally.recent, Peak: e.tally.peaks.Known(), Passed: e.ladder.carry(), MayFail: e.tally.mayFail(e.tally.counts.Failed),
	}
}

// resume takes over the state that another workflow left.
func (e *engine) resume(c contract.Carry) {
	e.source, e.claim, e.todo, e.paused, e.contact, e.total = c.Source, c.Claim, c.Todo, c.Paused, c.Contact, c.Items
	e.ladder.resume(c.Passed)
	e.tally = tally{maxFailures: -1}
	e.tally.absorb(c)
	if c.MayFail != nil {
		e.tally.allow(*c.MayFail)
	}
	e.sizer.Fixed, e.sizer.Beyond = c.Window, c.Beyond
	e.sizer.Resume(c)
}

// absorb adds what a segment has done, and takes back the pieces that it left.
func (e *engine) absorb(ctx workflow.Context, done contract.Carry) {
	e.ladder.resume(done.Passed)
	e.tally.absorb(done)
	e.sizer.Resume(done)
	for _, piece := range done.Todo {
		e.requeue(ctx, piece)
	}
}

// steer sets pause and window.
func (e *engine) steer(to steering) { e.paused, e.sizer.Fixed, e.changed = to.Paused, to.Window, true }

package workflows

import (
	"cmp"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/text"
)

// hand hands out the next chunk of the pieces that are due, if the workflow has room.
func (e *engine) hand(ctx workflow.Context) bool {
	at := e.todo.First(workflow.Now(ctx))
	piece, left := e.todo[at], e.todo.Items()
	size, forced, inHistory := e.sizer.Size(piece, left), false, e.parts == ""
	if inHistory && e.in.Chunk == 0 {
		if floor := e.budget.minItems(ctx); floor > size {
			size, forced = floor, true
		}
	}
	size, bytes := e.fits(piece, size)
	if inHistory {
		if err := e.budget.full(ctx, e, bytes); err != nil {
			e.fail(err)
			return false
		}
	}
	if !e.budget.take(ctx, &e.turn, bytes) {
		return false
	}
	e.dispatch(ctx, e.todo.Take(at, size), forced)
	return true
}

// fits is how many of so many items of a piece one activity can carry, at least one, and
// how many bytes it is then.
func (e *engine) fits(piece contract.Piece, size int64) (items int64, bytes int) {
	bytes = envelope + len(e.in.Arg)
	if e.items == nil {
		return size, bytes + 16*min(len(piece.Runs), contract.MaxRuns)
	}
	carried := 0
	for _, run := range piece.Runs {
		for i := run.Start; i < run.End && items < size; i++ {
			weight := len(e.items[i]) + 1
			if carried+weight > inlineChunk && items > 0 {
				return items, bytes + carried
			}
			carried += weight
			items++
		}
	}
	return items, bytes + carried
}

func (e *engine) unsent() (bytes int) {
	if e.parts != "" {
		return 0
	}
	for _, piece := range e.todo {
		for _, run := range piece.Runs {
			for _, item := range e.items[run.Start:run.End] {
				bytes += len(item) + 1
			}
		}
	}
	return bytes
}

// awaited is how many bytes of results the chunks in flight are likely to bring.
func (e *engine) awaited() int {
	if e.parts != "" {
		return 0
	}
	if e.got == 0 {
		return e.inFlight * unknownResults
	}
	return int(e.underWay) * (e.gotInBytes / e.got)
}

func (e *engine) summaryOf(piece contract.Piece, at int) string {
	summary := e.in.Task + " " + piece.Describe() + " on " + e.ladder.rungs[at].name
	if piece.Tries > 0 {
		summary += fmt.Sprintf(", try %d", piece.Tries+1)
	}
	return summary
}

// dispatch starts the activity of a chunk. One that is larger than it should be, for want
// of room in the history, hands nothing back.
func (e *engine) dispatch(ctx workflow.Context, piece contract.Piece, forced bool) {
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
		Arg: e.in.Arg, ArgFile: e.in.ArgFile, MayFail: e.tally.mayFail(e.tally.counts.Failed), Backoff: e.in.Backoff > 0, Tries: piece.Tries,
		Work: piece.Work, Source: e.source, Range: e.in.Range, Key: e.in.Key, WithItem: e.in.WithItem,
		Parts: e.parts, Claim: e.claim, Larger: e.ladder.hasLarger(at), Limit: gpumux.Duration(e.sizer.Limit(piece)),
		Together: e.sizer.Together(), Guessed: !e.sizer.Informed && (e.inFlight > 0 || len(e.todo) > 0),
	}
	if forced {
		chunk.Limit = 0
	}
	if e.items != nil {
		for _, run := range piece.Runs {
			chunk.Items = append(chunk.Items, e.items[run.Start:run.End]...)
		}
	}
	e.inFlight++
	e.underWay += piece.Len()
	e.tally.chunks++
	handed := workflow.Now(ctx)
	future := workflow.ExecuteActivity(workflow.WithActivityOptions(within, options), contract.RunChunk, chunk)
	workflow.Go(ctx, func(ctx workflow.Context) {
		var result contract.ChunkResult
		err := contract.Get(ctx, future, &result)
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
			err = e.apply(ctx, piece, at, perItem, result)
		}
		e.inFlight--
		e.underWay -= piece.Len()
		e.budget.release()
		e.changed = true
		e.fail(err)
		if e.onChange != nil {
			e.onChange(ctx)
		}
	})
}

func (e *engine) apply(ctx workflow.Context, piece contract.Piece, at int, perItem time.Duration, result contract.ChunkResult) error {
	for _, r := range result.Results {
		e.got, e.gotInBytes = e.got+1, e.gotInBytes+r.Weight()
	}
	e.in.Edition = cmp.Or(e.in.Edition, result.Edition)
	e.tally.add(result)
	usual := gpumux.Duration(cmp.Or(perItem, e.sizer.PerItem))
	e.sizer.Learn(result)
	e.contact = cmp.Or(e.contact, result.Contact)
	items := piece.Len()
	if result.Covered < items {
		rest := contract.Piece{Work: piece.After(result.Covered), Rung: piece.Rung, Tries: piece.Tries}
		if piece.Pace > 0 || usual > 0 && result.Pace > slack*usual { // much slower items keep a pace of their own
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
	if e.onResults != nil && len(result.Results) > 0 {
		return e.onResults(ctx, result.Results)
	}
	return nil
}

// retryLater puts back the items of a piece that raised, for another try after a pause.
// Pauses that end at nearly the same time end together, so that many chunks with few such
// items each do not become many pieces.
func (e *engine) retryLater(ctx workflow.Context, piece contract.Piece, items contract.Runs) {
	const steps = 8
	pause := pauseBefore(time.Duration(e.in.Backoff), piece.Tries)
	step := max(1, pause/steps)
	due := workflow.Now(ctx).Add(pause + step - 1).Truncate(step)
	e.requeue(ctx, contract.Piece{Work: contract.Work{Runs: items}, Rung: piece.Rung, Tries: piece.Tries + 1, Due: due})
}

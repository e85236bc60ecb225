package workflows

import (
	"cmp"
	"encoding/json"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/text"
)

// hand hands out so many items of a piece as a chunk, if the workflow has room.
func (s *stage) hand(ctx workflow.Context, at int, size int64) bool {
	forced, inHistory := false, s.parts == ""
	if inHistory && s.in.Chunk == 0 {
		if floor := s.e.budget.minItems(ctx); floor > size {
			size, forced = floor, true
		}
	}
	size, bytes := s.fits(s.todo[at], size)
	if inHistory {
		if err := s.e.budget.full(ctx, s.e, bytes); err != nil {
			s.e.fail(ctx, err)
			return false
		}
	}
	if !s.e.budget.take(ctx, &s.e.turn, bytes) {
		return false
	}
	s.dispatch(ctx, s.todo.Take(at, size), forced)
	return true
}

// fits is how many of so many items of a piece one activity can carry, at least one, and
// how many bytes it is then.
func (s *stage) fits(piece contract.Piece, size int64) (items int64, bytes int) {
	bytes = envelope + len(s.in.Arg)
	if s.items == nil {
		return size, bytes + 16*min(len(piece.Runs), contract.MaxRuns)
	}
	carried := 0
	for _, run := range piece.Runs {
		for i := run.Start; i < run.End && items < size; i++ {
			weight := len(s.items[i]) + 1
			if carried+weight > inlineChunk && items > 0 {
				return items, bytes + carried
			}
			carried += weight
			items++
		}
	}
	return items, bytes + carried
}

func (s *stage) unsent() (bytes int) {
	if s.parts != "" {
		return 0
	}
	for _, piece := range s.todo {
		for _, run := range piece.Runs {
			for _, item := range s.items[run.Start:run.End] {
				bytes += len(item) + 1
			}
		}
	}
	return bytes
}

// awaited is how many bytes of results the chunks in flight are likely to bring.
func (s *stage) awaited() int {
	if s.parts != "" {
		return 0
	}
	if s.got == 0 {
		return s.inFlight * unknownResults
	}
	return int(s.underWay) * (s.gotInBytes / s.got)
}

func (s *stage) summaryOf(piece contract.Piece, at int) string {
	return s.in.Task + " " + piece.Describe() + " on " + s.ladder.rungs[at].name + text.When(piece.Tries > 0, ", try %d", piece.Tries+1)
}

// dispatch starts the activity of a chunk. One that is larger than it should be, for want
// of room in the history, hands nothing back.
func (s *stage) dispatch(ctx workflow.Context, piece contract.Piece, forced bool) {
	e := s.e
	perItem := s.sizer.Pace(piece) // 0: nobody knows
	at, within, leave := s.ladder.place(ctx, piece.Rung, piece.Len())
	options := workflow.ActivityOptions{
		TaskQueue:           s.ladder.rungs[at].queue,
		StartToCloseTimeout: endless,
		HeartbeatTimeout:    contract.TimeoutAbreast(e.contact, max(s.inFlight, int(min(s.todo.Items(), int64(s.sizer.Part()))), s.sizer.Share*s.sizer.Part()/4)),
		WaitForCancellation: true,
		Summary:             text.Plain(s.summaryOf(piece, at)),
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: 100 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: 10 * time.Second,
			NonRetryableErrorTypes: tooLarge,
		},
		Priority: fairly(ctx, e.in, e.id),
	}
	chunk := contract.Chunk{
		Map: e.id, Task: s.in.Task, Edition: s.in.Edition, Mode: s.in.Mode, Timeout: s.in.Timeout, Attempts: s.in.Attempts, RetryOn: s.in.RetryOn,
		Arg: s.in.Arg, ArgFile: s.in.ArgFile, MayFail: e.failures.mayFail(e.failed()), Backoff: s.in.Backoff > 0, Tries: piece.Tries,
		Work: piece.Work, Parts: s.parts, Claim: e.claim, Feeds: s.next() != nil,
		Larger: s.ladder.hasLarger(at), Limit: gpumux.Duration(s.sizer.Limit(piece)),
		Together: s.sizer.Together(), Guessed: !s.sizer.Informed && (s.inFlight > 0 || len(s.todo) > 0),
	}
	if s.at == 0 {
		chunk.Source, chunk.Range, chunk.Key = e.source, s.in.Range, s.in.Key
		chunk.WithItem = s.in.WithItem && (s.parts != "" || s.next() == nil) // else the history has it already
	} else if s.parts != "" {
		chunk.Values = &contract.Values{Folder: s.before().parts, Parts: piece.From}
	}
	if forced {
		chunk.Limit = 0
	}
	if s.items != nil {
		for _, run := range piece.Runs {
			chunk.Items = append(chunk.Items, s.items[run.Start:run.End]...)
		}
	}
	s.inFlight++
	s.underWay += piece.Len()
	s.tally.chunks++
	handed := workflow.Now(ctx)
	future := workflow.ExecuteActivity(workflow.WithActivityOptions(within, options), contract.RunChunk, chunk)
	workflow.Go(ctx, func(ctx workflow.Context) {
		var result contract.ChunkResult
		err := contract.Get(ctx, future, &result)
		passed := leave()
		s.underWay -= piece.Len()
		switch {
		case err != nil && passed:
			s.requeue(ctx, piece)
			err = nil
		case err != nil:
		case chunk.Edition == "" && result.Edition != "" && s.in.Edition != "" && result.Edition != s.in.Edition:
			s.requeue(ctx, piece) // no result of it counts; now the edition to ask for is known
		default:
			s.sizer.LearnShare(workflow.Now(ctx).Sub(handed), time.Duration(result.Held))
			err = s.apply(ctx, piece, at, perItem, result)
		}
		s.inFlight--
		e.budget.release()
		e.changed = true
		e.fail(ctx, err)
		if e.onChange != nil {
			e.onChange(ctx)
		}
	})
}

func (s *stage) apply(ctx workflow.Context, piece contract.Piece, at int, perItem time.Duration, result contract.ChunkResult) error {
	s.in.Edition = cmp.Or(s.in.Edition, result.Edition)
	s.tally.add(result)
	s.e.failures.add(result.Recent)
	usual := gpumux.Duration(cmp.Or(perItem, s.sizer.PerItem))
	s.sizer.Learn(result)
	s.e.contact = cmp.Or(s.e.contact, result.Contact)
	items := piece.Len()
	if result.Covered < items {
		rest := piece
		rest.Work, rest.Pace, rest.Due = piece.After(result.Covered), 0, time.Time{}
		if piece.Pace > 0 || usual > 0 && result.Pace > slack*usual { // much slower items keep a pace of their own
			rest.Pace = result.Pace
		}
		s.requeue(ctx, rest)
	} else if piece.Pace > 0 && result.Ran > 0 {
		s.todo.EasePace(result.Busy / gpumux.Duration(result.Ran))
	}
	if len(result.Escalate) > 0 && s.ladder.hasLarger(at) {
		s.requeue(ctx, contract.Piece{Work: contract.Work{Runs: result.Escalate}, From: piece.From, Rung: at + 1, Tries: piece.Tries})
	}
	if len(result.Retry) > 0 {
		s.retryLater(ctx, piece, result.Retry)
	}
	if len(result.Lost) > 0 { // the stage before makes their values again
		s.before().tally.Add(contract.Counts{Succeeded: -result.Lost.Len()})
		s.before().requeue(ctx, contract.Piece{Work: contract.Work{Runs: result.Lost}})
	}
	if len(result.Done) > 0 {
		s.values, s.weight = s.values+result.Done.Len(), s.weight+result.Bytes
		s.next().requeue(ctx, contract.Piece{Work: contract.Work{Runs: result.Done}, From: result.Written})
	}
	return s.take(ctx, result.Results)
}

// take takes results that came inline: the values of a stage are items of the next.
func (s *stage) take(ctx workflow.Context, results []gpumux.Result) error {
	var final []gpumux.Result
	next := s.next()
	for _, r := range results {
		s.got, s.gotInBytes = s.got+1, s.gotInBytes+r.Weight()
		if next != nil && r.Fault == nil {
			if next.items == nil {
				next.items = make([]json.RawMessage, s.e.total)
			}
			next.items[r.Index] = r.Value
			next.todo.Add(contract.Piece{Work: contract.Work{Runs: contract.Runs{{Start: r.Index, End: r.Index + 1}}}})
			continue
		}
		if len(s.e.stages) > 1 {
			r.Key, r.Item = contract.Label(s.e.first().items[r.Index], s.e.in.Key, s.e.in.WithItem)
		}
		final = append(final, r)
	}
	if s.e.onResults == nil || len(final) == 0 {
		return nil
	}
	return s.e.onResults(ctx, final)
}

// retryLater puts back the items of a piece that raised, for another try after a pause.
// Pauses that end at nearly the same time end together, so that many chunks with few such
// items each do not become many pieces.
func (s *stage) retryLater(ctx workflow.Context, piece contract.Piece, items contract.Runs) {
	const steps = 8
	pause := pauseBefore(time.Duration(s.in.Backoff), piece.Tries)
	step := max(1, pause/steps)
	due := workflow.Now(ctx).Add(pause + step - 1).Truncate(step)
	s.requeue(ctx, contract.Piece{Work: contract.Work{Runs: items}, From: piece.From, Rung: piece.Rung, Tries: piece.Tries + 1, Due: due})
}

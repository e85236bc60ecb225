package workflows

import (
	"encoding/json"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

const (
	// endless stands for no limit: the items' own timeout decides how long a chunk may take.
	endless = 10 * 365 * 24 * time.Hour
	// inlineChunk bounds the items that one activity carries; the server takes 2 MiB.
	inlineChunk = 256 << 10
	// unknownResults is how much a chunk's results are taken for before any are known.
	unknownResults = 64 << 10
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
	// asked says that the caller named the output, so that earlier runs may have left
	// results there.
	asked bool
	// onResults is called with the results of a chunk that came back inline.
	onResults func(workflow.Context, []gpumux.Result) error
	onChange  func(workflow.Context)

	total int64
	todo  contract.Backlog
	sizer sizer
	tally tally

	inFlight int
	// underWay is how many items are in flight, got how many results came back through the
	// history, and gotInBytes what they weigh.
	underWay        int64
	got, gotInBytes int
	budget          *budget
	turn            waiter
	paused          bool
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
	e := &engine{id: id, in: in, items: in.Items, sizer: newSizer(in)}
	e.turn.wake = func() { e.changed = true }
	e.ladder = newLadder(in, func(ctx workflow.Context) {
		e.changed = true
		if e.onChange != nil {
			e.onChange(ctx)
		}
	})
	e.begin(total)
	return e
}

func (e *engine) begin(total int64) {
	e.total = total
	e.tally.allow(e.in.MaxFailures.Count(total))
	e.todo.Add(contract.Piece{Work: contract.Whole(total)})
}

// run returns when every item has a result, the map failed, more items failed than may,
// or it was cancelled or drained. Then no chunk is in flight.
func (e *engine) run(ctx workflow.Context) error {
	e.sizer.Inline, e.budget = e.parts == "", budgetOf(ctx)
	if err := e.budget.join(ctx, e); err != nil {
		return err
	}
	defer e.budget.part(e)
	work, cancel := workflow.WithCancel(ctx)
	defer cancel()
	for ctx.Err() == nil && e.fault == nil && !e.tally.tooMany(e.tally.counts.Failed) {
		draining, waits := e.drain != nil && e.drain(), false
		for !waits && e.fault == nil && !e.paused && !draining && e.todo.Due(workflow.Now(ctx)) == 0 && e.inFlight < e.sizer.Part() {
			waits = !e.hand(work)
		}
		if !waits {
			e.budget.leave(&e.turn)
		}
		if e.fault != nil {
			break
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
		err := contract.Get(ctx, workflow.ExecuteActivity(housekeeping(ctx, "store a work list"), contract.WriteList, input), &work)
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

func (e *engine) summary() gpumux.Summary {
	return gpumux.Summary{
		Task: e.in.Task, Items: e.total, Succeeded: e.tally.counts.Succeeded, Failed: e.tally.counts.Failed, Faults: e.tally.counts.Faults,
		Busy: gpumux.Duration(e.tally.busy), Chunks: e.tally.chunks, Peak: e.tally.peaks.Known(), PassedOver: e.ladder.passedOver(true),
	}
}

func (e *engine) carry() *contract.Carry {
	return &contract.Carry{
		Source: e.source, Claim: e.claim, Todo: e.todo, Items: e.total, Succeeded: e.tally.counts.Succeeded, Failed: e.tally.counts.Failed,
		Faults: e.tally.counts.Faults, Chunks: e.tally.chunks, Busy: gpumux.Duration(e.tally.busy), Pace: e.sizer.Carry(), Contact: e.contact,
		Slots: e.sizer.Slots, Paused: e.paused, Window: e.sizer.Fixed,
		Recent: e.tally.recent, Peak: e.tally.peaks.Known(), Passed: e.ladder.carry(), MayFail: e.tally.mayFail(e.tally.counts.Failed),
	}
}

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

func (e *engine) absorb(ctx workflow.Context, done contract.Carry) {
	e.ladder.resume(done.Passed)
	e.tally.absorb(done)
	e.sizer.Resume(done)
	for _, piece := range done.Todo {
		e.requeue(ctx, piece)
	}
}

func (e *engine) steer(to steering) { e.paused, e.sizer.Fixed, e.changed = to.Paused, to.Window, true }

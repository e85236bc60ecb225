package workflows

import (
	"slices"
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

// engine takes the items of one map through its stages: it keeps a window of chunks in
// flight for each, and books their results. Its state changes only in the workflow's own
// coroutines, so replay repeats it.
type engine struct {
	id     string
	in     gpumux.MapInput
	stages []*stage
	source *contract.Source
	claim  contract.Claim
	// asked says that the caller named the output, so that earlier runs may have left
	// results there.
	asked bool
	// onResults is called with final results that came back inline.
	onResults func(workflow.Context, []gpumux.Result) error
	onChange  func(workflow.Context)

	total    int64
	failures failures
	budget   *budget
	turn     waiter
	paused   bool
	fault    error
	changed  bool
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
	e := &engine{id: id, in: in}
	e.turn.wake = func() { e.changed = true }
	for at, step := range in.Steps() {
		e.stages = append(e.stages, newStage(e, at, step))
	}
	e.first().items = in.Items
	e.begin(total)
	return e
}

func (e *engine) first() *stage { return e.stages[0] }
func (e *engine) last() *stage  { return e.stages[len(e.stages)-1] }

func (e *engine) begin(total int64) {
	e.total = total
	e.failures.allow(e.failed(), e.in.MaxFailures.Count(total))
	e.first().todo.Add(contract.Piece{Work: contract.Whole(total)})
}

// run returns when every item has a result, the map failed, more items failed than may,
// or it was cancelled or drained. Then no chunk is in flight.
func (e *engine) run(ctx workflow.Context) error {
	for _, s := range e.stages {
		s.sizer.Inline = s.parts == ""
	}
	e.budget = budgetOf(ctx)
	if err := e.budget.join(ctx, e); err != nil {
		return err
	}
	defer e.budget.part(e)
	work, cancel := workflow.WithCancel(ctx)
	defer cancel()
	for ctx.Err() == nil && e.fault == nil && !e.failures.tooMany(e.failed()) {
		draining, waits := e.drain != nil && e.drain(), false
		for _, s := range slices.Backward(e.stages) { // what is nearer to its end goes first
			for !waits && e.fault == nil && !e.paused && !draining {
				at, size := s.ready(ctx)
				if size == 0 {
					break
				}
				waits = !s.hand(work, at, size)
			}
		}
		if !waits {
			e.budget.leave(&e.turn)
		}
		if e.fault != nil {
			break
		}
		if e.inFlight() == 0 && (draining || e.left() == 0) {
			return nil
		}
		if e.idle(ctx, draining) != nil {
			break
		}
	}
	cancel()
	if err := settled(ctx, func() bool { return e.inFlight() == 0 }); err != nil {
		return err
	}
	if e.fault != nil {
		return e.fault
	}
	return ctx.Err()
}

// sum adds up what each stage has.
func (e *engine) sum(count func(*stage) int64) (n int64) {
	for _, s := range e.stages {
		n += count(s)
	}
	return n
}

func (e *engine) inFlight() int64 { return e.sum(func(s *stage) int64 { return int64(s.inFlight) }) }
func (e *engine) failed() int64   { return e.sum(func(s *stage) int64 { return s.tally.Failed }) }
func (e *engine) chunks() int64   { return e.sum(func(s *stage) int64 { return s.tally.chunks }) }

// left is how many items wait in all stages.
func (e *engine) left() int64 { return e.sum(func(s *stage) int64 { return s.todo.Items() }) }

// settled waits until nothing is in flight, also in a workflow that was cancelled.
func settled(ctx workflow.Context, idle func() bool) error {
	rest, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	return workflow.Await(rest, idle)
}

// idle waits for a change, or until items that raised may be tried again. While no worker
// of a stage is known and there is work, it widens the window if no change comes.
func (e *engine) idle(ctx workflow.Context, draining bool) error {
	e.changed = false
	wait, unknown := time.Duration(0), []*stage{}
	for _, s := range e.stages {
		pause, now := s.todo.Due(workflow.Now(ctx)), false
		if pause <= 0 {
			pause, now = s.sizer.Wait(), true
		}
		if pause == 0 || len(s.todo) == 0 || e.paused || draining && !now {
			continue
		}
		if now {
			unknown = append(unknown, s)
		}
		if wait == 0 || pause < wait {
			wait = pause
		}
	}
	if wait == 0 {
		return workflow.Await(ctx, func() bool { return e.changed })
	}
	changed, err := workflow.AwaitWithTimeout(ctx, wait, func() bool { return e.changed })
	for _, s := range unknown {
		if err == nil && !changed && wait == s.sizer.Wait() {
			s.sizer.Widen()
		}
	}
	return err
}

// maxRuns is how many runs of items a workflow holds itself. More become a work list in
// the store, so that histories and handoffs stay small.
const maxRuns = 1 << 14

// requeue puts a piece back. If there are too many runs then, those of one piece go into
// the store.
func (s *stage) requeue(ctx workflow.Context, piece contract.Piece) {
	s.todo.Add(piece)
	if s.parts == "" || s.items != nil {
		return
	}
	piece, spilled := s.todo.Spill(maxRuns)
	if !spilled {
		return
	}
	s.inFlight++
	input := contract.ListInput{Parts: s.parts, Runs: piece.Runs}
	workflow.Go(ctx, func(ctx workflow.Context) {
		var work contract.Work
		err := contract.Get(ctx, workflow.ExecuteActivity(housekeeping(ctx, "store a work list"), contract.WriteList, input), &work)
		s.inFlight--
		s.e.changed = true
		if s.e.fail(ctx, err); err == nil {
			piece.Work = work
			s.requeue(ctx, piece)
		}
	})
}

// fail ends the run with an error, unless it ends already: a chunk that is cancelled
// between two attempts says why the first of them ended.
func (e *engine) fail(ctx workflow.Context, err error) {
	if err != nil && e.fault == nil && ctx.Err() == nil && !temporal.IsCanceledError(err) {
		e.fault = unwrapFault(err)
	}
}

func (e *engine) summary() gpumux.Summary {
	out := gpumux.Summary{Task: e.in.Name(), Items: e.total, Succeeded: e.last().tally.Succeeded, PassedOver: e.passedOver(true)}
	var all tally
	for _, s := range e.stages {
		all.absorb(s.carry())
	}
	out.Failed, out.Faults, out.Busy, out.Chunks, out.Peak = all.Failed, all.Faults, gpumux.Duration(all.busy), all.chunks, all.peaks.Known()
	out.GPU = all.use.Known()
	if len(e.stages) > 1 {
		for _, s := range e.stages {
			out.Stages = append(out.Stages, s.progress(s.status(time.Time{})))
		}
	}
	return out
}

func (e *engine) passedOver(ever bool) (pools []string) {
	for _, s := range e.stages {
		pools = withPools(pools, s.ladder.passedOver(ever))
	}
	return pools
}

// withPools adds the pools that are not among them.
func withPools(pools, more []string) []string {
	for _, pool := range more {
		if !slices.Contains(pools, pool) {
			pools = append(pools, pool)
		}
	}
	return pools
}

func (e *engine) carry() *contract.Carry {
	c := &contract.Carry{
		Source: e.source, Claim: e.claim, Items: e.total, Contact: e.contact, Paused: e.paused,
		Recent: e.failures.recent, MayFail: e.failures.mayFail(e.failed()),
	}
	for _, s := range e.stages {
		c.Stages = append(c.Stages, s.carry())
	}
	return c
}

func (e *engine) resume(c contract.Carry) {
	e.source, e.claim, e.paused, e.contact, e.total = c.Source, c.Claim, c.Paused, c.Contact, c.Items
	for i, s := range e.stages {
		s.resume(c.Stages[i])
	}
	e.failures = failures{max: -1, recent: c.Recent}
	if c.MayFail != nil {
		e.failures.allow(e.failed(), *c.MayFail)
	}
}

func (e *engine) absorb(ctx workflow.Context, done contract.Carry) {
	e.failures.add(done.Recent)
	for i, s := range e.stages {
		s.absorb(ctx, done.Stages[i])
	}
}

func (e *engine) steer(to steering) { e.paused, e.changed = to.Paused, true }

package workflows

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/text"
)

const (
	// segmentChunks is how many chunks one workflow runs itself: a few thousand events.
	segmentChunks = 500
	// longHistory is the number of events after which a map continues as a new run; the
	// server warns at 10,240.
	longHistory = 6000
	// tellEvery is how often a segment tells its map how far it is if there are two
	// segments, and tellShare how often of the map's age at most. If there are more
	// segments, or the map is old, it tells less often.
	tellEvery = 5 * time.Second
	tellShare = 50

	// Signals between a map and its segments.
	steerSignal = "steer"
	tellSignal  = "segment"
)

// steering is the signal of a map to its segments.
type steering struct {
	Paused bool `json:"paused"`
}

// segmentStatus is the signal of a segment to its map.
type segmentStatus struct {
	ID     string          `json:"id"`
	Stages []stageStatus   `json:"stages"`
	Recent []gpumux.Result `json:"recent,omitempty"`
}

// segments are child workflows that take the work beyond the limit of a map's history.
type segments struct {
	owner *mapping
	// count is how many were started, open are those under way.
	count  int
	open   map[string]*segmentRun
	failed error
	// changed wakes the coroutine that starts segments; the engine's own flag wakes the
	// engine.
	changed bool
}

type segmentRun struct {
	future workflow.ChildWorkflowFuture
	last   segmentStatus
}

// work runs the map's pieces: the first chunks here, which is all that most maps have,
// and the rest in segments. If it returns with pieces left, the map should continue as a
// new run; nothing is in flight then.
func (s *segments) work(ctx workflow.Context, resumed bool) error {
	e := s.owner.engine
	s.open, s.failed = map[string]*segmentRun{}, nil
	work, cancel := workflow.WithCancel(ctx)
	defer cancel()
	busy, began := false, e.chunks()
	if !resumed {
		busy = true
		e.drain = func() bool { // each segment has all items that travel inline, so those wait longer
			n := e.chunks() - began
			return n >= segmentChunks && (e.first().items == nil || n >= 4*segmentChunks)
		}
		workflow.Go(work, func(ctx workflow.Context) {
			err := e.run(ctx)
			s.failed = cmp.Or(s.failed, err) // a segment may have failed first, and ended this one
			busy, s.changed = false, true
		})
	}
	workflow.Go(work, s.listen)
	for ctx.Err() == nil && s.failed == nil {
		if e.failures.tooMany(s.owner.failed()) {
			recent := s.owner.progress(workflow.Now(ctx)).Recent
			s.failed = e.tooManyError(s.owner.failed(), recent, "`gpumux show` groups them by cause")
			break
		}
		info := workflow.GetInfo(ctx)
		long := info.GetCurrentHistoryLength() > longHistory || info.GetContinueAsNewSuggested()
		spread := resumed || e.drain()
		for spread && !long && !e.paused && len(s.open) < e.abreast() && e.left() > 0 {
			s.start(work)
		}
		if !busy && len(s.open) == 0 && (e.left() == 0 || long) {
			return nil
		}
		s.changed = false
		if workflow.Await(ctx, func() bool { return s.changed || !spread && e.drain() }) != nil {
			break
		}
	}
	cancel()
	if err := settled(ctx, func() bool { return !busy && len(s.open) == 0 }); err != nil {
		return err
	}
	if s.failed != nil {
		return s.failed
	}
	return ctx.Err()
}

func (s *segments) start(ctx workflow.Context) {
	e := s.owner.engine
	abreast, items := e.abreast(), s.nextItems()
	s.count++
	id := fmt.Sprintf("%s.segment-%d", e.id, s.count)
	carry := e.carry()
	carry.Started, carry.MayFail, carry.Recent = s.owner.started, e.failures.mayFail(s.owner.failed()), nil
	r := &segmentRun{last: segmentStatus{Stages: make([]stageStatus, len(e.stages))}}
	var begins contract.Piece
	for at, stage := range slices.Backward(e.stages) { // what is nearer to its end goes first
		pieces := contract.Backlog(stage.todo.Cut(min(items, stage.todo.Items())))
		if items -= pieces.Items(); len(pieces) > 0 {
			begins = pieces[0]
		}
		c := &carry.Stages[at]
		c.Todo, c.Counts, c.Chunks, c.Ran, c.Busy, c.Peak, c.GPU, c.Beyond = pieces, contract.Counts{}, 0, 0, 0, nil, nil, stage.todo.Items()
		r.last.Stages[at] = stageStatus{Waiting: pieces.Items(), Left: newLadder(stage.in, nil).left(pieces)}
	}
	if abreast > minAbreast {
		carry.Abreast = abreast
	}
	options := workflow.ChildWorkflowOptions{
		WorkflowID: id, TaskQueue: gpumux.Queue, WaitForCancellation: true,
		ParentClosePolicy: enums.PARENT_CLOSE_POLICY_REQUEST_CANCEL,
		// A map that was reset finds the segments of the run before still at work; their items
		// are run again.
		WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_TERMINATE_IF_RUNNING, //nolint:staticcheck // a child's options lack its successor
		StaticSummary:         text.Plain(fmt.Sprintf("%s: %s", s.owner.in.Name(), begins.Describe())),
	}
	s.open[id] = r
	r.future = workflow.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, options), contract.SegmentWorkflow, contract.Handoff{Input: contract.Input(s.owner.in), Carry: carry})
	workflow.Go(ctx, func(ctx workflow.Context) {
		var done contract.Carry
		err := contract.Get(ctx, r.future, &done)
		delete(s.open, id)
		s.changed = true
		if err != nil {
			if s.failed == nil && ctx.Err() == nil {
				s.failed = unwrapFault(err)
			}
			return
		}
		e.absorb(ctx, done)
		s.owner.show(ctx)
	})
}

// nextItems is how many items the next segment gets: as many as its chunks are likely to
// hold, and while others could run beside it at most its share of what is left.
func (s *segments) nextItems() int64 {
	e := s.owner.engine
	left, perItem := e.left(), 0.0 // chunks
	for _, stage := range e.stages {
		perItem += 1 / float64(stage.sizer.Size(contract.Piece{}, left))
	}
	want := min(max(1, int64(segmentChunks/perItem)), left)
	if beside := int64(e.abreast() - len(s.open)); beside > 1 {
		want = min(want, (left+beside-1)/beside)
	}
	return want
}

// abreast is how many segments the map needs at once.
func (e *engine) abreast() (n int) {
	for _, s := range e.stages {
		n = max(n, s.sizer.Abreast())
	}
	return n
}

// steer passes a pause or its end on to the running segments.
func (s *segments) steer(ctx workflow.Context, to steering) {
	s.changed = true
	for _, id := range sortedKeys(s.open) {
		r := s.open[id]
		workflow.Go(ctx, func(ctx workflow.Context) {
			// A segment that has just ended need not know.
			r.future.SignalChildWorkflow(ctx, steerSignal, to).Get(ctx, nil)
		})
	}
}

func (s *segments) listen(ctx workflow.Context) {
	channel := workflow.GetSignalChannel(ctx, tellSignal)
	for {
		var status segmentStatus
		channel.Receive(ctx, &status)
		if r, ok := s.open[status.ID]; ok {
			r.last = status
			s.changed = s.changed || s.owner.engine.failures.tooMany(s.owner.failed())
			s.owner.show(ctx)
		}
	}
}

// runSegment is gpumux.Segment: it runs its pieces until they are finished or its history
// is long enough. It returns their counts and the pieces that are left.
func runSegment(ctx workflow.Context, raw converter.RawValue) (contract.Carry, error) {
	in, carry, err := contract.ReadSegment(ctx, raw)
	if err != nil {
		return contract.Carry{}, invalid(err)
	}
	info := workflow.GetInfo(ctx)
	e := newEngine(info.ParentWorkflowExecution.ID, in, 0)
	if len(carry.Stages) != len(e.stages) {
		return contract.Carry{}, invalid(fmt.Errorf("the state has %d stages, the input %d", len(carry.Stages), len(e.stages)))
	}
	e.resume(*carry)
	e.place(in, carry.Items, carry.Source)
	share := max(minAbreast, carry.Abreast)
	for _, s := range e.stages {
		s.sizer.Share = share
	}
	pause := tellEvery * time.Duration(share) / minAbreast
	e.drain = func() bool { return e.chunks() >= segmentChunks }
	shown := workflow.Now(ctx)
	e.onChange = func(ctx workflow.Context) {
		now := workflow.Now(ctx)
		if now.Sub(shown) < max(pause, now.Sub(carry.Started)/tellShare) {
			return
		}
		shown = now
		s := segmentStatus{ID: info.WorkflowExecution.ID, Recent: e.failures.recent}
		for _, stage := range e.stages {
			s.Stages = append(s.Stages, stage.status(now))
		}
		parent := info.ParentWorkflowExecution.ID
		workflow.Go(ctx, func(ctx workflow.Context) {
			// This is only for people who watch: the map counts again when the segment ends.
			workflow.SignalExternalWorkflow(ctx, parent, "", tellSignal, s).Get(ctx, nil)
		})
	}
	workflow.Go(ctx, func(ctx workflow.Context) {
		channel := workflow.GetSignalChannel(ctx, steerSignal)
		for {
			var to steering
			channel.Receive(ctx, &to)
			e.steer(to)
		}
	})
	// With more failures than may it returns early, and its map ends.
	if err := e.run(ctx); err != nil {
		return contract.Carry{}, err
	}
	return *e.carry(), nil
}

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
	Window int  `json:"window"`
}

// segmentStatus is the signal of a segment to its map.
type segmentStatus struct {
	ID         string                     `json:"id"`
	Succeeded  int64                      `json:"succeeded"`
	Failed     int64                      `json:"failed"`
	Chunks     int64                      `json:"chunks"`
	InFlight   int                        `json:"inFlight"`
	Waiting    int64                      `json:"waiting,omitempty"`
	Faults     map[gpumux.FaultKind]int64 `json:"faults,omitempty"`
	Recent     []gpumux.Result            `json:"recent,omitempty"`
	PassedOver []string                   `json:"passedOver,omitempty"`
	// Left is how many items have no result yet, by rung.
	Left []int64 `json:"left,omitempty"`
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
	busy, began := false, e.tally.chunks
	if !resumed {
		busy = true
		e.drain = func() bool { return e.items == nil && e.tally.chunks-began >= segmentChunks }
		workflow.Go(work, func(ctx workflow.Context) {
			err := e.run(ctx)
			s.failed = cmp.Or(s.failed, err) // a segment may have failed first, and ended this one
			busy, s.changed = false, true
		})
	}
	workflow.Go(work, s.listen)
	for ctx.Err() == nil && s.failed == nil {
		if e.tally.tooMany(s.owner.failed()) {
			recent := s.owner.progress(workflow.Now(ctx)).Recent
			s.failed = e.tally.tooManyError(e.in, e.total, s.owner.failed(), recent, "`gpumux show` groups them by cause")
			break
		}
		info := workflow.GetInfo(ctx)
		long := info.GetCurrentHistoryLength() > longHistory || info.GetContinueAsNewSuggested()
		spread := resumed || e.drain()
		for spread && !long && !e.paused && len(s.open) < e.sizer.Abreast() && len(e.todo) > 0 {
			s.start(work)
		}
		if !busy && len(s.open) == 0 && (len(e.todo) == 0 || long) {
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
	abreast := e.sizer.Abreast()
	pieces := e.todo.Cut(s.nextItems(abreast))
	s.count++
	id := fmt.Sprintf("%s.segment-%d", e.id, s.count)
	carry := e.carry()
	carry.Todo, carry.Started, carry.MayFail = pieces, s.owner.started, e.tally.mayFail(s.owner.failed())
	carry.Succeeded, carry.Failed, carry.Faults, carry.Chunks, carry.Busy, carry.Peak, carry.Recent = 0, 0, nil, 0, 0, nil, nil
	if abreast > minAbreast {
		carry.Abreast = abreast
	}
	carry.Beyond = e.todo.Items()
	options := workflow.ChildWorkflowOptions{
		WorkflowID: id, TaskQueue: gpumux.Queue, WaitForCancellation: true,
		ParentClosePolicy: enums.PARENT_CLOSE_POLICY_REQUEST_CANCEL,
		// A map that was reset finds the segments of the run before still at work; their items
		// are run again.
		WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_TERMINATE_IF_RUNNING, //nolint:staticcheck // a child's options lack its successor
		StaticSummary:         text.Plain(fmt.Sprintf("%s: %s", s.owner.in.Task, pieces[0].Describe())),
	}
	r := &segmentRun{last: segmentStatus{Left: newLadder(s.owner.in, nil).left(pieces)}}
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
func (s *segments) nextItems(abreast int) int64 {
	e := s.owner.engine
	left := e.todo.Items()
	want := min(segmentChunks*e.sizer.Size(contract.Piece{Work: e.todo[0].Work}, left), left)
	if beside := int64(abreast - len(s.open)); beside > 1 {
		want = min(want, (left+beside-1)/beside)
	}
	return want
}

// steer passes a change of pause or window on to the running segments.
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
			s.changed = s.changed || s.owner.engine.tally.tooMany(s.owner.failed())
			s.owner.show(ctx)
		}
	}
}

func (s *segments) addTo(p *gpumux.Progress) {
	counts, recent := contract.Counts{}, tally{recent: p.Recent}
	counts.Add(p.Succeeded, p.Failed, p.Faults)
	for _, id := range sortedKeys(s.open) {
		r := s.open[id].last
		counts.Add(r.Succeeded, r.Failed, r.Faults)
		recent.addRecent(r.Recent)
		p.Chunks += r.Chunks
		p.InFlight += r.InFlight
		p.Waiting += r.Waiting
		for _, pool := range r.PassedOver {
			if !slices.Contains(p.PassedOver, pool) {
				p.PassedOver = append(p.PassedOver, pool)
			}
		}
	}
	p.Succeeded, p.Failed, p.Faults, p.Recent = counts.Succeeded, counts.Failed, counts.Faults, recent.recent
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
	e.resume(*carry)
	e.parts = contract.PartsOf(in.Output)
	e.sizer.Share = max(minAbreast, carry.Abreast)
	pause := tellEvery * time.Duration(e.sizer.Share) / minAbreast
	e.drain = func() bool { return e.tally.chunks >= segmentChunks }
	shown := workflow.Now(ctx)
	e.onChange = func(ctx workflow.Context) {
		now := workflow.Now(ctx)
		if now.Sub(shown) < max(pause, now.Sub(carry.Started)/tellShare) {
			return
		}
		shown = now
		s := segmentStatus{
			ID: info.WorkflowExecution.ID, Succeeded: e.tally.counts.Succeeded, Failed: e.tally.counts.Failed, Chunks: e.tally.chunks, InFlight: e.inFlight,
			Waiting: e.todo.Waiting(now), Faults: e.tally.counts.Faults, Recent: e.tally.recent, PassedOver: e.ladder.passedOver(false), Left: e.ladder.left(e.todo),
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

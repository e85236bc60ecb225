package workflows

import (
	"cmp"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/sizing"
	"github.com/gpumux/gpumux/internal/text"
)

const (
	// segmentChunks is how many chunks one workflow runs itself: a few thousand events.
	segmentChunks = 500
	// longHistory is the number of events after which a map continues as a new run; the
	// server warns at 10,240.
	longHistory = 6000
	// tellEvery is how often a segment tells its map how far it is if there are two
	// segments. If there are more, it tells less often.
	tellEvery = 5 * time.Second

	// Signals between a map and its segments.
	steerSignal = "steer"
	tellSignal  = "segment"
)

// steering is what a map tells its segments.
type steering struct {
	Paused bool `json:"paused"`
	Window int  `json:"window"`
}

// segmentStatus is what a segment tells its map.
type segmentStatus struct {
	ID        string `json:"id"`
	Succeeded int64  `json:"succeeded"`
	Failed    int64  `json:"failed"`
	Chunks    int64  `json:"chunks"`
	InFlight  int    `json:"inFlight"`
	// PassedOver are the pools that are passed over now.
	PassedOver []string `json:"passedOver,omitempty"`
}

// segmentRun is a segment under way.
type segmentRun struct {
	future workflow.ChildWorkflowFuture
	last   segmentStatus
}

// work runs the map's pieces: the first chunks here, which is all that most maps have,
// and the rest in segments. If it returns with pieces left, the map should continue as a
// new run; nothing is in flight then.
func (m *mapping) work(ctx workflow.Context, resumed bool) error {
	m.segmentsOpen = map[string]*segmentRun{}
	work, cancel := workflow.WithCancel(ctx)
	defer cancel()
	own, began := false, m.engine.chunks
	var failed error
	if !resumed {
		own = true
		m.engine.drain = func() bool { return !m.engine.inline && m.engine.chunks-began >= segmentChunks }
		workflow.Go(work, func(ctx workflow.Context) {
			err := m.engine.run(ctx)
			failed = cmp.Or(failed, err) // a segment may have failed first, and ended this one
			own, m.changed = false, true
		})
	}
	workflow.Go(work, m.listen)
	for ctx.Err() == nil && failed == nil {
		if m.failedEnough() {
			failed = m.engine.tooManyFailures(m.failed())
			break
		}
		info := workflow.GetInfo(ctx)
		long := info.GetCurrentHistoryLength() > longHistory || info.GetContinueAsNewSuggested()
		spread := resumed || m.engine.drain()
		for spread && !long && !m.engine.paused && len(m.segmentsOpen) < m.engine.sizer.Abreast() && len(m.engine.todo) > 0 {
			m.startSegment(work, &failed)
		}
		if !own && len(m.segmentsOpen) == 0 && (len(m.engine.todo) == 0 || long) {
			return nil
		}
		m.changed = false
		if workflow.Await(ctx, func() bool { return m.changed || !spread && m.engine.drain() }) != nil {
			break
		}
	}
	cancel()
	rest, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	if err := workflow.Await(rest, func() bool { return !own && len(m.segmentsOpen) == 0 }); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	return ctx.Err()
}

// startSegment starts the next segment and books its result.
func (m *mapping) startSegment(ctx workflow.Context, failed *error) {
	abreast := m.engine.sizer.Abreast()
	pieces := m.nextSegment(abreast)
	m.segmentCount++
	id := fmt.Sprintf("%s/segment-%d", m.engine.id, m.segmentCount)
	carry := m.engine.carry()
	carry.Todo, carry.Started, carry.MayFail = pieces, m.started, m.engine.mayFail(m.failed())
	carry.Succeeded, carry.Failed, carry.Faults, carry.Chunks, carry.Busy, carry.Peak = 0, 0, nil, 0, 0, nil
	if abreast > sizing.LeastAbreast {
		carry.Abreast = abreast
	}
	carry.Beyond = m.engine.left()
	options := workflow.ChildWorkflowOptions{
		WorkflowID: id, TaskQueue: gpumux.Queue, WaitForCancellation: true,
		ParentClosePolicy: enums.PARENT_CLOSE_POLICY_REQUEST_CANCEL,
		// A map that was reset finds the segments of the run before still at work; their items
		// are run again.
		//lint:ignore SA1019 a child's options do not have its successor
		WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_TERMINATE_IF_RUNNING,
		StaticSummary:         text.Plain(fmt.Sprintf("%s: %s", m.in.Task, pieces[0].Describe())),
	}
	r := &segmentRun{}
	m.segmentsOpen[id] = r
	r.future = workflow.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, options), contract.SegmentWorkflow, contract.Handoff{Input: contract.Input(m.in), Carry: carry})
	workflow.Go(ctx, func(ctx workflow.Context) {
		var done contract.Carry
		err := r.future.Get(ctx, &done)
		delete(m.segmentsOpen, id)
		m.changed = true
		if err != nil {
			if *failed == nil && ctx.Err() == nil {
				*failed = unwrapFault(err)
			}
			return
		}
		m.engine.resumePassed(done.Passed)
		m.engine.counts.Add(done.Succeeded, done.Failed, done.Faults)
		m.engine.chunks += done.Chunks
		m.engine.busy += time.Duration(done.Busy)
		m.engine.peaks.Merge(done.Peak)
		m.engine.sizer.Largest, m.engine.sizer.PerItem = max(m.engine.sizer.Largest, done.Largest), time.Duration(done.PerItem)
		m.engine.sizer.LearnSlots(done.Slots)
		for _, piece := range done.Todo {
			m.engine.requeue(ctx, piece)
		}
		m.show(ctx)
	})
}

// nextSegment cuts the pieces of the next segment off the work: as many items as its
// chunks are likely to hold. While others could run beside it, it gets at most its share
// of what is left.
func (m *mapping) nextSegment(abreast int) (pieces []contract.Piece) {
	left := m.engine.left()
	want := min(segmentChunks*m.engine.sizer.Size(contract.Piece{Work: m.engine.todo[0].Work}, left), left)
	if beside := int64(abreast - len(m.segmentsOpen)); beside > 1 {
		want = min(want, (left+beside-1)/beside)
	}
	for want > 0 {
		piece := m.engine.todo[0]
		piece.Work = m.engine.todo[0].Cut(want)
		if m.engine.todo[0].Len() == 0 {
			m.engine.todo = m.engine.todo[1:]
		}
		want -= piece.Len()
		pieces = append(pieces, piece)
	}
	return pieces
}

// steerSegments passes a change of pause or window on to the running segments.
func (m *mapping) steerSegments(ctx workflow.Context, s steering) {
	for _, id := range sortedKeys(m.segmentsOpen) {
		r := m.segmentsOpen[id]
		workflow.Go(ctx, func(ctx workflow.Context) {
			// A segment that has just ended need not know.
			r.future.SignalChildWorkflow(ctx, steerSignal, s).Get(ctx, nil)
		})
	}
}

// listen receives the status of segments.
func (m *mapping) listen(ctx workflow.Context) {
	channel := workflow.GetSignalChannel(ctx, tellSignal)
	for {
		var s segmentStatus
		channel.Receive(ctx, &s)
		if r, ok := m.segmentsOpen[s.ID]; ok {
			r.last = s
			m.changed = m.changed || m.failedEnough()
			m.show(ctx)
		}
	}
}

// runSegment is gpumux.Segment: it runs its pieces until they are finished or its history
// is long enough. It returns their counts and the pieces that are left.
func runSegment(ctx workflow.Context, raw converter.RawValue) (contract.Carry, error) {
	in, carry, err := decodeSegment(ctx, raw)
	if err != nil {
		return contract.Carry{}, invalid(err)
	}
	info := workflow.GetInfo(ctx)
	e := resumeEngine(info.ParentWorkflowExecution.ID, in, *carry)
	e.parts = contract.PartsOf(in.Output)
	e.sizer.Share = max(sizing.LeastAbreast, carry.Abreast)
	pause := tellEvery * time.Duration(e.sizer.Share) / sizing.LeastAbreast
	e.drain = func() bool { return e.chunks >= segmentChunks }
	told := workflow.Now(ctx)
	e.onChange = func(ctx workflow.Context) {
		now := workflow.Now(ctx)
		if now.Sub(told) < pause {
			return
		}
		told = now
		s := segmentStatus{
			ID: info.WorkflowExecution.ID, Succeeded: e.counts.Succeeded, Failed: e.counts.Failed, Chunks: e.chunks, InFlight: e.inFlight,
			PassedOver: e.passedOver(false),
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
			var s steering
			channel.Receive(ctx, &s)
			if s.Window < 0 || s.Window > gpumux.MaxWindow {
				continue // not from a map
			}
			e.paused, e.sizer.Fixed, e.changed = s.Paused, s.Window, true
		}
	})
	// With more failures than may it returns early, and its map ends.
	if err := e.run(ctx); err != nil {
		return contract.Carry{}, err
	}
	return *e.carry(), nil
}

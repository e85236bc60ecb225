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
)

const (
	// segmentChunks is how many chunks one workflow runs itself: a few thousand events.
	segmentChunks = 500
	// leastAbreast is how many segments of a map run at once at least. segmentWindow is how many chunks one should have in
	// flight at most, half of what it runs, before there are more: it spends less of its life running dry.
	leastAbreast  = 2
	segmentWindow = 250
	// longHistory is the number of events after which a map continues as a new run; the server warns at 10,240.
	longHistory = 6000
	// tellEvery is how often a segment tells its map how far it is when there are two, and less often when there are more.
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

// standing is what a segment tells its map.
type standing struct {
	ID        string `json:"id"`
	Succeeded int64  `json:"succeeded"`
	Failed    int64  `json:"failed"`
	Chunks    int64  `json:"chunks"`
	InFlight  int    `json:"inFlight"`
}

// possible reports whether a segment of so many items can stand like this: any client may send the signal.
func (s standing) possible(items int64) bool {
	return min(s.Succeeded, s.Failed, s.Chunks, int64(s.InFlight)) >= 0 && max(s.Succeeded, s.Failed) <= items &&
		max(s.Chunks, int64(s.InFlight)) <= gpumux.MaxItems
}

// running is a segment under way.
type running struct {
	future workflow.ChildWorkflowFuture
	items  int64
	last   standing
}

// work runs the map's pieces: the first chunks here, which is all that most maps have, and what is left in segments. It
// returns with pieces left only when the map should continue as a new run; nothing is in flight then.
func (m *mapping) work(ctx workflow.Context, continued bool) error {
	m.running = map[string]*running{}
	work, cancel := workflow.WithCancel(ctx)
	defer cancel()
	own, began := false, m.e.chunks
	var failed error
	if !continued {
		own = true
		m.e.drain = func() bool { return !m.e.inline && m.e.chunks-began >= segmentChunks }
		workflow.Go(work, func(ctx workflow.Context) {
			err := m.e.run(ctx)
			failed = cmp.Or(failed, err) // a segment may have failed first, and ended this one
			own, m.changed = false, true
		})
	}
	workflow.Go(work, m.listen)
	for ctx.Err() == nil && failed == nil {
		info := workflow.GetInfo(ctx)
		long := info.GetCurrentHistoryLength() > longHistory || info.GetContinueAsNewSuggested()
		spread := continued || m.e.drain()
		for spread && !long && !m.e.paused && len(m.running) < m.e.sizer.abreast() && len(m.e.todo) > 0 {
			m.segment(work, &failed)
		}
		if !own && len(m.running) == 0 && (len(m.e.todo) == 0 || long) {
			return nil
		}
		m.changed = false
		if workflow.Await(ctx, func() bool { return m.changed || !spread && m.e.drain() }) != nil {
			break
		}
	}
	cancel()
	rest, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	if err := workflow.Await(rest, func() bool { return !own && len(m.running) == 0 }); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	return ctx.Err()
}

// segment starts the next one and takes in what it comes to.
func (m *mapping) segment(ctx workflow.Context, failed *error) {
	abreast := m.e.sizer.abreast()
	pieces := m.cut(abreast)
	m.segments++
	id := fmt.Sprintf("%s/segment-%d", m.e.id, m.segments)
	part := m.e.carry()
	part.Todo, part.Started = pieces, m.started
	part.Succeeded, part.Failed, part.Faults, part.Chunks, part.Busy = 0, 0, nil, 0, 0
	part.Peak = nil
	if abreast > leastAbreast {
		part.Abreast = abreast
	}
	part.Beyond = m.e.left()
	options := workflow.ChildWorkflowOptions{
		WorkflowID: id, TaskQueue: gpumux.Queue, WaitForCancellation: true,
		ParentClosePolicy: enums.PARENT_CLOSE_POLICY_REQUEST_CANCEL,
		// A map that was reset finds the segments of the run before still at work; their items are run again.
		//lint:ignore SA1019 what stands in its place is not among a child's options
		WorkflowIDReusePolicy: enums.WORKFLOW_ID_REUSE_POLICY_TERMINATE_IF_RUNNING,
		StaticSummary:         gpumux.Plain(fmt.Sprintf("%s: %s", m.in.Task, noun(pieces[0].Work))),
	}
	r := &running{}
	for _, piece := range pieces {
		r.items += piece.Len()
	}
	m.running[id] = r
	r.future = workflow.ExecuteChildWorkflow(workflow.WithChildOptions(ctx, options), contract.SegmentWorkflow, continued{m.in, part})
	workflow.Go(ctx, func(ctx workflow.Context) {
		var done contract.Carry
		err := r.future.Get(ctx, &done)
		delete(m.running, id)
		m.changed = true
		if err != nil {
			if *failed == nil && ctx.Err() == nil {
				*failed = plain(err)
			}
			return
		}
		for rung, edition := range done.Editions {
			if !m.e.agrees(rung, edition) && *failed == nil {
				*failed = m.e.mixed(rung, edition)
			}
		}
		m.e.counts.add(done.Succeeded, done.Failed, done.Faults)
		m.e.chunks += done.Chunks
		m.e.busy += time.Duration(done.Busy)
		m.e.peaks.Merge(done.Peak)
		m.e.sizer.largest, m.e.sizer.perItem = max(m.e.sizer.largest, done.Largest), time.Duration(done.PerItem)
		m.e.sizer.meet(done.Slots)
		for _, piece := range done.Todo {
			m.e.again(ctx, piece)
		}
		m.show(ctx)
	})
}

// cut takes the pieces of the next segment off the work: as many items as its chunks are likely to hold, and at most its share
// of what is left while others could run beside it.
func (m *mapping) cut(abreast int) (pieces []contract.Piece) {
	left := m.e.left()
	want := min(segmentChunks*m.e.sizer.size(contract.Piece{Work: m.e.todo[0].Work}, left), left)
	if beside := int64(abreast - len(m.running)); beside > 1 {
		want = min(want, (left+beside-1)/beside)
	}
	for want > 0 {
		piece := m.e.todo[0]
		piece.Work = m.e.todo[0].Cut(want)
		if m.e.todo[0].Len() == 0 {
			m.e.todo = m.e.todo[1:]
		}
		want -= piece.Len()
		pieces = append(pieces, piece)
	}
	return pieces
}

// tell passes on to the running segments what people want of the map.
func (m *mapping) tell(ctx workflow.Context, s steering) {
	for _, id := range sorted(m.running) {
		r := m.running[id]
		workflow.Go(ctx, func(ctx workflow.Context) {
			// One that has just ended need not know.
			r.future.SignalChildWorkflow(ctx, steerSignal, s).Get(ctx, nil)
		})
	}
}

// listen takes in what segments say of themselves.
func (m *mapping) listen(ctx workflow.Context) {
	channel := workflow.GetSignalChannel(ctx, tellSignal)
	for {
		var s standing
		channel.Receive(ctx, &s)
		if r, ok := m.running[s.ID]; ok && s.possible(r.items) {
			r.last = s
			m.show(ctx)
		}
	}
}

// segment is gpumux.Segment: it runs its pieces until they are finished or its history is long enough, and returns what they
// came to and what is left.
func segment(ctx workflow.Context, raw converter.RawValue) (contract.Carry, error) {
	in, carry, err := partOf(ctx, raw)
	if err != nil {
		return contract.Carry{}, invalid(err)
	}
	info := workflow.GetInfo(ctx)
	e := resumed(info.ParentWorkflowExecution.ID, in, *carry)
	e.parts = contract.PartsOf(in.Output)
	e.sizer.share = max(leastAbreast, carry.Abreast)
	pause := tellEvery * time.Duration(e.sizer.share) / leastAbreast
	e.drain = func() bool { return e.chunks >= segmentChunks }
	told := workflow.Now(ctx)
	e.shown = func(ctx workflow.Context) {
		now := workflow.Now(ctx)
		if now.Sub(told) < pause {
			return
		}
		told = now
		s := standing{
			ID: info.WorkflowExecution.ID, Succeeded: e.counts.succeeded, Failed: e.counts.failed, Chunks: e.chunks, InFlight: e.inFlight,
		}
		parent := info.ParentWorkflowExecution.ID
		workflow.Go(ctx, func(ctx workflow.Context) {
			// The map counts again when the segment ends; this is only for people who watch.
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
			e.paused, e.sizer.fixedWindow, e.changed = s.Paused, s.Window, true
		}
	})
	if err := e.run(ctx); err != nil {
		return contract.Carry{}, err
	}
	return *e.carry(), nil
}

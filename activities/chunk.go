package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/store"
)

const (
	// inlineResults is the most bytes of results that a chunk returns through the history.
	inlineResults = 256 << 10
	// largestResult is the most bytes of one result that can travel inline at all.
	largestResult = 1 << 20
)

// errFailFast ends a chunk at its first failed item.
var errFailFast = errors.New("an item failed and the map is to fail fast")

// Pool serves the queue of one pool, or of one device of it.
type Pool struct {
	Runner Runner
	Store  *store.Store
	// Recorders are shared by all pools of a worker.
	Recorders *Recorders
	// Worker and Slots are told to the map, which sizes its window by them. The number may change; nil says none.
	Worker string
	Slots  func() int
	// Edition is that of a task's code, or a *gpumux.Fault where the task is unknown.
	Edition func(task string) (string, error)
	// Workers is how many workers serve the queue, 0 where the server does not say. Default: nobody else does.
	Workers func(ctx context.Context) int
	// Log takes what people should know of faults. Default: the SDK's.
	Log log.Logger
	// Doubt says that the server may have given a chunk which arrives now to another worker already: the server is asked before
	// its items run. Default: never.
	Doubt func() bool
}

// Register registers RunChunk, FindEdition and Reduce.
func (p *Pool) Register(r worker.ActivityRegistry) {
	r.RegisterActivityWithOptions(checked(p.RunChunk), activity.RegisterOptions{Name: contract.RunChunk})
	r.RegisterActivityWithOptions(checked(p.FindEdition), activity.RegisterOptions{Name: contract.FindEdition})
	r.RegisterActivityWithOptions(checked(p.Reduce), activity.RegisterOptions{Name: contract.Reduce})
}

// RunChunk runs the items of a chunk that have no result yet. An error that Temporal retries carries the fault as its type and
// details; the next attempt goes on behind what has finished.
func (p *Pool) RunChunk(ctx context.Context, chunk contract.Chunk) (contract.ChunkResult, error) {
	r := &run{Pool: p, ctx: ctx, chunk: chunk, log: p.Log}
	if r.log == nil {
		r.log = activity.GetLogger(ctx)
	}
	if err := r.load(); err != nil {
		return contract.ChunkResult{}, err
	}
	if err := p.doubted(ctx, func() { activity.RecordHeartbeat(ctx, r.l.snapshot("")) }); err != nil {
		return contract.ChunkResult{}, err
	}
	if r.stream != nil {
		defer r.stream.leave()
	}
	stop := r.beat()
	err := r.loop()
	if stored := r.flush(ctx, err == nil); err == nil {
		err = stored
	}
	stop()
	if err != nil {
		activity.RecordHeartbeat(ctx, r.l.snapshot(r.waits()))
		return contract.ChunkResult{}, err
	}
	return r.result(), nil
}

// doubted asks the server, with a heartbeat, whether an activity is still this worker's where that is in doubt. The first heartbeat
// of an activity returns when it was answered, and ends ctx when it was refused.
func (p *Pool) doubted(ctx context.Context, beat func()) error {
	if p.Doubt == nil || !p.Doubt() {
		return nil
	}
	beat()
	return context.Cause(ctx)
}

// run is one attempt at a chunk.
type run struct {
	*Pool
	ctx   context.Context
	chunk contract.Chunk
	log   log.Logger
	l     *ledger
	// stream is nil where results travel inline only.
	stream *stream
	busy   time.Duration
	full   bool
	limit  limit
	// told counts the failed items that the log has.
	told int
}

// load finds what earlier attempts have finished.
func (r *run) load() error {
	c := r.chunk
	if c.Parts != "" {
		if _, err := r.Store.Key(c.Parts); err != nil {
			return hopeless(err)
		}
	}
	if err := r.Store.Holds(r.ctx, c.Claim); err != nil {
		return hopeless(err)
	}
	again := activity.GetInfo(r.ctx).Attempt > 1
	if !again { // what a later attempt knows of deaths must not be lost with a chunk that is handed back
		r.limit.after = time.Duration(c.Limit)
	}
	var m memo
	known := activity.HasHeartbeatDetails(r.ctx) && activity.GetHeartbeatDetails(r.ctx, &m) == nil
	if known {
		defer alive(r.ctx, m)()
	} else {
		defer alive(r.ctx)()
	}
	items, err := r.Store.ItemsOf(r.ctx, c.Work)
	if errors.Is(err, fs.ErrNotExist) {
		return badInput(err, "start the map again; what has finished is kept")
	}
	if err != nil {
		return hopeless(err)
	}
	if known {
		err = m.fits(items)
	}
	if err != nil || !known && activity.HasHeartbeatDetails(r.ctx) {
		r.log.Warn("heartbeat of the last attempt is unreadable; starting over", "error", err)
		m = memo{}
	}
	if c.Parts != "" && !c.Inline {
		m.Results = nil
	}
	r.l = newLedger(c, items, m)
	if c.Parts == "" {
		return nil
	}
	if err := r.recall(); err != nil {
		return err
	}
	stream, written, err := r.Recorders.join(c.Parts, c.Claim.ID)
	if err != nil {
		return hopeless(err)
	}
	r.stream = stream
	r.l.begin(stream, written)
	return nil
}

// recall takes in what earlier attempts stored.
func (r *run) recall() error {
	found := false
	for _, written := range r.l.memo.Written {
		err := r.Store.Since(r.ctx, r.chunk.Parts, written, func(index int64, kind gpumux.Kind) {
			found = r.l.stored(index, kind) || found
		}, func(damaged error) {
			r.log.Warn("what an earlier attempt stored is damaged; its items run again", "error", damaged)
		})
		if err != nil {
			return fmt.Errorf("read what earlier attempts stored: %w", err)
		}
	}
	// What is stored already stays stored: this attempt's results join it there.
	r.l.chunk.Inline = r.l.chunk.Inline && !found
	return nil
}

// loop makes calls until no item is left.
func (r *run) loop() error {
	for {
		spans, alone, whole := r.l.next()
		if len(spans) == 0 || r.full || r.limit.reached() || (r.chunk.FailFast && r.l.result.Failed > 0) {
			return nil
		}
		spans = r.fit(spans)
		ctx, cancel := context.WithCancelCause(r.ctx)
		began := time.Now()
		// Neither a slot that has to come free nor a store that is far makes an item slow.
		var waited atomic.Int64
		err := r.Runner.Run(ctx, Call{
			Task: r.chunk.Task, Mode: r.chunk.Mode, Timeout: time.Duration(r.chunk.Timeout), Attempts: r.chunk.Attempts,
			Clean: alone, Whole: whole, Items: r.items(ctx, spans, func() { waited.CompareAndSwap(0, int64(time.Since(began))) }),
			Peak: r.l.peak, Edition: r.l.edition(), Ran: r.l.ran,
			Done: func(result gpumux.Result) {
				r.limit.note()
				result = r.sized(result)
				r.l.add(result)
				r.tell(result)
				if r.chunk.FailFast && result.Fault != nil {
					cancel(errFailFast)
				}
			},
		})
		cancel(nil)
		r.busy += time.Since(began) - time.Duration(waited.Load())
		if errors.Is(err, errFailFast) {
			return nil
		}
		if err != nil {
			if err = r.judge(spans, err); err != nil {
				return err
			}
		}
	}
}

// judge decides what an error of a call means. Nil goes on with the chunk.
func (r *run) judge(spans gpumux.Runs, err error) error {
	var fault *gpumux.Fault
	switch {
	case r.ctx.Err() != nil && errors.Is(context.Cause(r.ctx), worker.ErrWorkerShutdown):
		return again(&gpumux.Fault{Kind: gpumux.Canceled, Op: "run", Message: "the worker shuts down; the chunk goes on elsewhere"}, retryDelay)
	case r.ctx.Err() != nil:
		// The cause tells a cancellation from a pause or reset of the activity.
		return context.Cause(r.ctx)
	case !errors.As(err, &fault):
		return hopeless(err)
	case fault.Edition != "":
		return r.elsewhere(fault)
	case fault.Kind == gpumux.BadInput:
		return final(fault)
	case fault.Kind == gpumux.DeviceLost || fault.Blameless:
		// Temporal's own growing delay gives the device time to come back.
		r.log.Warn("the worker or its device failed, not the item; the chunk is tried again", r.keys(fault, -1)...)
		return again(fault, 0)
	case fault.Op == "start":
		return r.judgeStart(fault)
	}
	index, verdict := r.l.blame(spans, fault)
	if verdict == "" {
		how := "alone in a clean process"
		switch {
		case fault.Batch > 1:
			how = "with half of its micro-batch"
		case fault.Kind.Memory() && fault.Alone:
			how = "with the whole device to itself"
		}
		r.log.Warn("item ended its process; it is tried again "+how, r.keys(fault, index)...)
		return again(fault, retryDelay)
	}
	r.log.Warn("item ended its process alone; "+verdict, r.keys(fault, index)...)
	return nil
}

func (r *run) judgeStart(fault *gpumux.Fault) error {
	r.l.mu.Lock()
	r.l.memo.Starts++
	starts := r.l.memo.Starts
	r.l.mu.Unlock()
	r.log.Warn("task process did not start", append(r.keys(fault, -1), "starts", starts)...)
	switch {
	case starts < failedStarts:
		return again(fault, 0)
	case fault.Kind.Memory() && r.chunk.Larger:
		r.l.escalateRest()
		return nil
	}
	return final(fault)
}

// items reads the items of the spans from wherever the chunk has them, until its time is over; what the slot holds by then still runs.
// Before each it waits for room in the store and calls there.
func (r *run) items(ctx context.Context, spans gpumux.Runs, there func()) iter.Seq2[gpumux.Item, error] {
	return func(yield func(gpumux.Item, error) bool) {
		give := func(index int64, value json.RawMessage) bool {
			if r.limit.over() {
				return false
			}
			err := r.uncrowded(ctx)
			there()
			return yield(gpumux.Item{Index: index, Value: value}, err)
		}
		if r.chunk.Items == nil && r.chunk.Range == nil {
			if err := r.Store.Pick(ctx, *r.chunk.Source, spans, give); err != nil {
				yield(gpumux.Item{}, err)
			}
			return
		}
		for _, span := range spans {
			for i := span.Start; i < span.End; i++ {
				if !give(i, r.value(i)) {
					return
				}
			}
		}
	}
}

// value is an item that the chunk carries, or one of its range.
func (r *run) value(index int64) json.RawMessage {
	if r.chunk.Range != nil {
		return strconv.AppendInt(nil, r.chunk.Range.Start+index, 10)
	}
	at, _ := r.l.at(index)
	return r.chunk.Items[at]
}

// fit shortens a call whose results can only travel inline, so that they are known to fit before more items run.
func (r *run) fit(spans gpumux.Runs) gpumux.Runs {
	if r.chunk.Parts != "" {
		return spans
	}
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	room, items := int64(inlineResults-r.l.bytes), int64(len(r.l.memo.Results))
	allowed := int64(1)
	if items > 0 {
		allowed = max(1, min(items*8, room*items/int64(2*r.l.bytes)))
	}
	short := slices.Clone(spans)
	for i, span := range short {
		if n := span.End - span.Start; n >= allowed {
			short[i].End = span.Start + allowed
			return short[:i+1]
		} else {
			allowed -= n
		}
	}
	return short
}

// sized replaces a result that is too large for the way it has to travel.
func (r *run) sized(result gpumux.Result) gpumux.Result {
	if n := len(result.Value); r.chunk.Parts == "" && n > largestResult {
		result.Value = nil
		result.Fault = &gpumux.Fault{
			Kind: gpumux.TaskError, Op: "run", Task: r.chunk.Task,
			Message: fmt.Sprintf("the result has %s, more than the %s that travel inline", gpumux.Size(n), gpumux.Size(largestResult)),
			Hint:    "run the map over a source in the store (gpumux.Map, MapSource), or write large results to a file and return its path",
		}
	}
	r.l.mu.Lock()
	if r.chunk.Parts == "" && r.l.bytes+result.Weight() > inlineResults {
		r.full = true
	}
	r.l.mu.Unlock()
	return result
}

// result is what the chunk came to.
func (r *run) result() contract.ChunkResult {
	out := r.l.result
	out.Peak, out.Edition = r.l.peaks.Known(), r.l.memo.Edition
	out.Covered, out.Busy, out.Worker = int64(len(r.l.done)), gpumux.Duration(r.busy), r.Worker
	if r.Slots != nil {
		out.Slots = r.Slots()
	}
	if r.chunk.Parts == "" || r.l.inline() {
		out.Results = r.l.memo.Results
		slices.SortFunc(out.Results, func(a, b gpumux.Result) int { return int(a.Index - b.Index) })
	}
	out.Escalate = r.l.memo.Escalate
	// A chunk that stopped early hands back everything from its first unfinished item on; items run in order.
	if at := slices.Index(r.l.done, false); at >= 0 {
		out.Covered = int64(at)
		if r.limit.reached() {
			out.Pace = gpumux.Duration(r.limit.pace())
		}
	}
	return out
}

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
	"github.com/gpumux/gpumux/activities/record"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/store"
)

// errFailFast ends a chunk when more items have failed than may.
var errFailFast = errors.New("more items failed than the map may have")

// Pool serves the queue of one pool, or of one device of it.
type Pool struct {
	Runner Runner
	Store  *store.Store
	// Recorders are shared by all pools of a worker.
	Recorders *record.Recorders
	// The map sizes its window by Worker and Slots. The number of slots may change. Nil tells the map nothing.
	Worker string
	Slots  func() int
	// Edition returns that of a task's code. The error is a *gpumux.Fault where the task is unknown.
	Edition func(task string) (string, error)
	// Contact is how long items run on while the server does not answer. Default: contract.Contact.
	Contact gpumux.Duration
	// Workers is how many workers serve the queue, 0 where the server does not say. Default: nobody else does.
	Workers func(ctx context.Context) int
	// Log is for what people should know of faults. Default: the SDK's.
	Log log.Logger
	// Saving is called when a chunk needs no slot any more, and what it returns when the chunk is over. Default: nobody is told.
	Saving func() (saved func())
	// Doubt reports whether the server may have given a chunk which arrives now to another worker already. Then the activity asks
	// the server before items run. Default: never.
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
	a := &attempt{Pool: p, ctx: ctx, chunk: chunk, log: p.Log, patience: handBack}
	if a.log == nil {
		a.log = activity.GetLogger(ctx)
	}
	if err := a.restore(); err != nil {
		return contract.ChunkResult{}, err
	}
	if err := p.doubted(ctx, func() { activity.RecordHeartbeat(ctx, a.ledger.snapshot("")) }); err != nil {
		return contract.ChunkResult{}, err
	}
	if a.stream != nil {
		defer a.stream.Leave()
	}
	stop := a.heartbeat()
	err := a.runItems()
	if p.Saving != nil {
		defer p.Saving()()
	}
	if stored := a.flush(ctx, err == nil); err == nil {
		err = stored
	}
	stop()
	if err != nil {
		activity.RecordHeartbeat(ctx, a.ledger.snapshot(a.waitingFor()))
		return contract.ChunkResult{}, err
	}
	return a.result(), nil
}

// doubted asks the server with a heartbeat whether an activity is still this worker's, if that is in doubt. A heartbeat returns
// when the server has answered. A refusal ends ctx.
func (p *Pool) doubted(ctx context.Context, beat func()) error {
	if p.Doubt == nil || !p.Doubt() {
		return nil
	}
	beat()
	return context.Cause(ctx)
}

// attempt is one attempt at a chunk.
type attempt struct {
	*Pool
	ctx    context.Context
	chunk  contract.Chunk
	log    log.Logger
	ledger *ledger
	// stream is nil where results travel inline only.
	stream *record.Stream
	busy   time.Duration
	full   bool
	limit  limit
	// patience is how long a call waits for a slot.
	patience time.Duration
	// unkept is why a file of an item is not stored yet.
	unkept atomic.Pointer[error]
	// logged counts the failed items that the log has.
	logged int
}

// restore finds what earlier attempts have finished.
func (a *attempt) restore() error {
	c := a.chunk
	if c.Parts != "" {
		if _, err := a.Store.Writable(c.Parts); err != nil {
			return classify(err)
		}
	}
	if err := a.Store.Holds(a.ctx, c.Parts, c.Claim); err != nil {
		return classify(err)
	}
	var m memo
	known := activity.HasHeartbeatDetails(a.ctx) && activity.GetHeartbeatDetails(a.ctx, &m) == nil
	if known {
		defer heartbeat(a.ctx, m)()
	} else {
		defer heartbeat(a.ctx)()
	}
	items, err := a.Store.ItemsOf(a.ctx, c.Work)
	if errors.Is(err, fs.ErrNotExist) {
		return badInput(err, "start the map again; what has finished is kept")
	}
	if err != nil {
		return classify(err)
	}
	if known {
		err = m.fits(items)
	}
	if err != nil || !known && activity.HasHeartbeatDetails(a.ctx) {
		a.log.Warn("heartbeat of the last attempt is unreadable; starting over", "error", err)
		m = memo{}
	}
	if c.Parts != "" && !c.Inline {
		m.Results = nil
	}
	if !m.knowsDeaths() {
		a.limit.after = time.Duration(c.Limit)
	}
	a.ledger = newLedger(c, items, m)
	if c.Parts == "" {
		return nil
	}
	if err := a.recall(); err != nil {
		return err
	}
	to, written, err := a.Recorders.Join(c.Parts, c.Claim.ID)
	if err != nil {
		return classify(err)
	}
	a.stream = to
	a.ledger.storeTo(to, written)
	return nil
}

// recall reads what earlier attempts stored.
func (a *attempt) recall() error {
	found := false
	for _, written := range a.ledger.memo.Written {
		err := a.Store.Since(a.ctx, a.chunk.Parts, written, func(index int64, kind gpumux.Kind) {
			found = a.ledger.restore(index, kind) || found
		}, func(damaged error) {
			a.log.Warn("what an earlier attempt stored is damaged; its items run again", "error", damaged)
		})
		if err != nil {
			return fmt.Errorf("read what earlier attempts stored: %w", err)
		}
	}
	// What is stored already stays stored: this attempt's results join it there.
	a.ledger.chunk.Inline = a.ledger.chunk.Inline && !found
	return nil
}

// runItems makes calls until no item is left.
func (a *attempt) runItems() error {
	for {
		spans, alone, whole := a.ledger.next()
		if len(spans) == 0 || a.full || a.limit.reached() || a.failedEnough() {
			return nil
		}
		spans = a.fit(spans)
		ctx, cancel := context.WithCancelCause(a.ctx)
		began := time.Now()
		// Waiting for a slot or for the store does not count as time of the items.
		var waited atomic.Int64
		err := a.Runner.Run(ctx, Call{
			Task: a.chunk.Task, Map: a.chunk.Map, Mode: a.chunk.Mode, Timeout: time.Duration(a.chunk.Timeout), Attempts: a.attempts(),
			Arg: a.chunk.Arg, Clean: alone, Whole: whole, Avoid: a.ledger.avoid(), Patience: a.patience, Len: spans.Len(),
			Items:   a.items(ctx, spans, func() { waited.CompareAndSwap(0, int64(time.Since(began))) }),
			Edition: a.ledger.edition(), Ran: a.ledger.ran,
			Arrays: contract.KeepsArrays(a.chunk.Parts) && !a.chunk.Inline, Keep: a.keeper(),
			Done: func(done Done) {
				a.limit.note()
				if done.Peak > 0 {
					a.ledger.peak(done.Peak, done.Budget)
				}
				if a.again(done.Result) {
					return
				}
				result := a.limitSize(done.Result)
				a.ledger.add(result)
				a.logFailure(result)
				if result.Fault != nil && a.failedEnough() {
					cancel(errFailFast)
				}
			},
		})
		cancel(nil)
		a.busy += time.Since(began) - time.Duration(waited.Load())
		if errors.Is(err, errFailFast) {
			return nil
		}
		if err != nil {
			if err = a.judgeError(spans, err); err != nil {
				return err
			}
		}
	}
}

// judgeError decides what an error of a call means. Nil goes on with the chunk.
func (a *attempt) judgeError(spans gpumux.Runs, err error) error {
	var fault *gpumux.Fault
	switch {
	case a.ctx.Err() != nil && errors.Is(context.Cause(a.ctx), worker.ErrWorkerShutdown):
		return retry(&gpumux.Fault{Kind: gpumux.Canceled, Op: "run", Message: "the worker shuts down; the chunk goes on elsewhere"}, retryDelay)
	case a.ctx.Err() != nil:
		// The cause says whether it was a cancellation, a pause or a reset of the activity.
		return context.Cause(a.ctx)
	case errors.Is(err, ErrBusy):
		return busy()
	case !errors.As(err, &fault):
		return classify(err)
	case fault.Edition != "":
		return a.elsewhere(fault)
	case fault.Kind == gpumux.BadInput:
		return final(fault)
	case fault.Blameless && a.ledger.spare():
		// Temporal's own growing delay gives the device time to come back.
		a.ledger.suspect(fault)
		a.log.Warn("the worker or its device failed, not the item; the chunk is tried again", a.logFields(fault, -1)...)
		return retry(fault, 0)
	case fault.Op == "start":
		return a.judgeStart(fault)
	}
	index, verdict := a.ledger.blame(spans, fault)
	if verdict == "" {
		how := "alone in a clean process"
		switch {
		case fault.Batch > 1:
			how = "with half of its micro-batch"
		case fault.Kind.Memory() && fault.Alone:
			how = "with the whole device to itself"
		}
		a.log.Warn("item ended its process; it is tried again "+how, a.logFields(fault, index)...)
		return retry(fault, retryDelay)
	}
	a.log.Warn("item ended its process alone; "+verdict, a.logFields(fault, index)...)
	return nil
}

func (a *attempt) judgeStart(fault *gpumux.Fault) error {
	a.ledger.suspect(fault)
	a.ledger.mu.Lock()
	a.ledger.memo.Starts++
	starts := a.ledger.memo.Starts
	a.ledger.mu.Unlock()
	a.log.Warn("task process did not start", append(a.logFields(fault, -1), "starts", starts)...)
	switch {
	case starts < failedStarts:
		return retry(fault, 0)
	case fault.Kind.Memory() && a.chunk.Larger:
		a.ledger.escalateRest()
		return nil
	}
	return final(fault)
}

// items reads the items of the spans until the chunk's time is over. What the slot holds by then still runs. Before each item it
// waits for room in the store and calls there.
func (a *attempt) items(ctx context.Context, spans gpumux.Runs, there func()) iter.Seq2[gpumux.Item, error] {
	return func(yield func(gpumux.Item, error) bool) {
		give := func(index int64, value json.RawMessage) bool {
			if a.limit.over() {
				return false
			}
			err := a.awaitRoom(ctx)
			if err == nil {
				value, err = a.ledger.takeItem(index, value)
			}
			there()
			return yield(gpumux.Item{Index: index, Value: value}, err)
		}
		if a.chunk.Items == nil && a.chunk.Range == nil {
			if err := a.Store.Pick(ctx, *a.chunk.Source, spans, give); err != nil {
				yield(gpumux.Item{}, err)
			}
			return
		}
		for _, span := range spans {
			for i := span.Start; i < span.End; i++ {
				if !give(i, a.itemAt(i)) {
					return
				}
			}
		}
	}
}

// itemAt is an item that the chunk carries, or one of its range.
func (a *attempt) itemAt(index int64) json.RawMessage {
	if a.chunk.Range != nil {
		return strconv.AppendInt(nil, a.chunk.Range.Start+index, 10)
	}
	at, _ := a.ledger.at(index)
	return a.chunk.Items[at]
}

// result is the result of the chunk.
func (a *attempt) result() contract.ChunkResult {
	out := a.ledger.result
	out.Peak, out.Edition = a.ledger.peaks.Known(), a.ledger.memo.Edition
	out.Covered, out.Busy, out.Worker, out.Contact = int64(len(a.ledger.done)), gpumux.Duration(a.busy), a.Worker, a.Contact
	if a.Slots != nil {
		out.Slots = a.Slots()
	}
	if a.chunk.Parts == "" || a.ledger.inline() {
		out.Results = a.ledger.memo.Results
		slices.SortFunc(out.Results, func(a, b gpumux.Result) int { return int(a.Index - b.Index) })
	}
	out.Escalate, out.Again = a.ledger.memo.Escalate, a.ledger.memo.Again
	// A chunk that stopped early hands back everything from its first unfinished item on; items run in order.
	if at := slices.Index(a.ledger.done, false); at >= 0 {
		out.Covered = int64(at)
		if a.limit.reached() {
			out.Pace = gpumux.Duration(a.limit.pace())
		}
	}
	return out
}

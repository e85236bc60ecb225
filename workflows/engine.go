package workflows

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
)

const (
	// endless stands for no limit: how long a chunk may take is decided by its items' own timeout.
	endless = 10 * 365 * 24 * time.Hour
	// keepRecent is how many of the newest failures a map shows.
	keepRecent = 5
	// inlineChunk bounds the bytes of items that one activity carries inline; the server takes 2 MiB.
	inlineChunk = 256 << 10
)

// engine runs the pieces of one map: it keeps a window of chunks in flight and takes in what they came to. All of its state
// changes in the workflow's own coroutines, so replay repeats it.
type engine struct {
	id     string
	in     gpumux.MapInput
	queues []string
	items  []json.RawMessage
	source *gpumux.Source
	parts  string
	inline bool
	// keep takes the results of a chunk that came back inline.
	keep func(workflow.Context, []gpumux.Result) error
	// shown is called after every change that people see.
	shown func(workflow.Context)

	total  int64
	todo   []gpumux.Piece
	sizer  sizer
	counts counts
	busy   time.Duration
	peaks  gpumux.Peaks
	chunks int64

	inFlight int
	paused   bool
	fault    error
	changed  bool
	recent   []gpumux.Result
	// drain stops handing out chunks, so that the map can continue as a new run.
	drain func() bool
}

// counts are the results so far.
type counts struct {
	succeeded, failed int64
	faults            map[gpumux.Kind]int64
}

func (c *counts) add(succeeded, failed int64, faults map[gpumux.Kind]int64) {
	c.succeeded += succeeded
	c.failed += failed
	if len(faults) > 0 && c.faults == nil {
		c.faults = map[gpumux.Kind]int64{}
	}
	for _, kind := range sorted(faults) {
		c.faults[kind] += faults[kind]
	}
}

// sorted are the keys of a map in an order that a replay repeats.
//
//workflowcheck:ignore
func sorted[V any, K cmp.Ordered](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// newEngine needs a valid input; total is the number of items.
func newEngine(id string, in gpumux.MapInput, total int64) *engine {
	e := &engine{id: id, in: in, total: total, items: in.Items, sizer: newSizer(in)}
	for _, rung := range in.Rungs() {
		queue, _ := gpumux.RungQueue(rung)
		e.queues = append(e.queues, queue)
	}
	if total > 0 {
		e.todo = []gpumux.Piece{{Span: gpumux.Span{End: total}}}
	}
	return e
}

// run returns when every item has a result, when the map failed, when it was cancelled, or when it was drained; in each case
// no chunk is in flight any more.
func (e *engine) run(ctx workflow.Context) error {
	work, cancel := workflow.WithCancel(ctx)
	defer cancel()
	for ctx.Err() == nil && e.fault == nil {
		draining := e.drain != nil && e.drain()
		for !e.paused && !draining && len(e.todo) > 0 && e.inFlight < e.sizer.window() {
			e.start(work, e.cut())
		}
		if e.inFlight == 0 && (draining || len(e.todo) == 0) {
			return nil
		}
		e.changed = false
		if err := workflow.Await(ctx, func() bool { return e.changed }); err != nil {
			break
		}
	}
	cancel()
	rest, done := workflow.NewDisconnectedContext(ctx)
	defer done()
	if err := workflow.Await(rest, func() bool { return e.inFlight == 0 }); err != nil {
		return err
	}
	if e.fault != nil {
		return e.fault
	}
	return ctx.Err()
}

// cut takes the next chunk off the pieces: higher rungs first, because they are the stragglers.
func (e *engine) cut() gpumux.Piece {
	at := 0
	for i, piece := range e.todo {
		if piece.Rung > e.todo[at].Rung {
			at = i
		}
	}
	var left int64
	for _, piece := range e.todo {
		left += piece.End - piece.Start
	}
	piece := e.todo[at]
	size := e.sizer.size(piece, left)
	if e.items != nil {
		size = min(size, e.fits(piece.Span))
	}
	if piece.End-piece.Start <= size {
		e.todo = slices.Delete(e.todo, at, at+1)
		return piece
	}
	e.todo[at].Start += size
	piece.End = piece.Start + size
	return piece
}

// fits is how many of the span's first items one activity can carry; at least one.
func (e *engine) fits(span gpumux.Span) int64 {
	bytes := 0
	for i := span.Start; i < span.End; i++ {
		if bytes += len(e.items[i]); bytes > inlineChunk && i > span.Start {
			return i - span.Start
		}
	}
	return span.End - span.Start
}

func (e *engine) start(ctx workflow.Context, piece gpumux.Piece) {
	rung := e.in.Rungs()[piece.Rung]
	noun := fmt.Sprintf("item %d", piece.Start)
	if piece.End-piece.Start > 1 {
		noun = fmt.Sprintf("items %d-%d", piece.Start, piece.End-1)
	}
	options := workflow.ActivityOptions{
		TaskQueue:           e.queues[piece.Rung],
		StartToCloseTimeout: endless,
		HeartbeatTimeout:    gpumux.HeartbeatTimeout,
		WaitForCancellation: true,
		Summary:             gpumux.Plain(e.in.Task + " " + noun + " on " + rung),
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: 100 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: 10 * time.Second,
			NonRetryableErrorTypes: []string{"payloadSizeError"},
		},
		Priority: temporal.Priority{PriorityKey: e.in.Priority, FairnessKey: e.in.FairnessKey},
	}
	chunk := gpumux.Chunk{
		Map: e.id, Task: e.in.Task, Mode: e.in.Mode, Timeout: e.in.Timeout, Attempts: e.in.Attempts, FailFast: e.in.FailFast,
		Start: piece.Start, End: piece.End, Source: e.source, Range: e.in.Range,
		Parts: e.parts, Inline: e.inline, Larger: piece.Rung+1 < len(e.queues), Limit: gpumux.Duration(e.sizer.limit(piece)),
	}
	if e.items != nil {
		chunk.Items = e.items[piece.Start:piece.End]
	}
	e.inFlight++
	e.chunks++
	future := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), gpumux.RunChunk, chunk)
	workflow.Go(ctx, func(ctx workflow.Context) {
		var result gpumux.ChunkResult
		err := future.Get(ctx, &result)
		if err == nil {
			err = e.take(ctx, piece, result)
		}
		e.inFlight--
		e.changed = true
		if err != nil && e.fault == nil && !temporal.IsCanceledError(err) {
			e.fault = plain(err)
		}
		if e.shown != nil {
			e.shown(ctx)
		}
	})
}

// take brings the result of a chunk into the map.
func (e *engine) take(ctx workflow.Context, piece gpumux.Piece, result gpumux.ChunkResult) error {
	e.counts.add(result.Succeeded, result.Failed, result.Faults)
	e.busy += time.Duration(result.Busy)
	e.peaks.Merge(result.Peak)
	e.sizer.learn(result)
	if result.Next < piece.End {
		e.again(gpumux.Piece{Span: gpumux.Span{Start: result.Next, End: piece.End}, Rung: piece.Rung, Pace: result.Pace})
	} else if piece.Pace > 0 && result.Ran > 0 {
		e.hurry(result.Busy / gpumux.Duration(result.Ran))
	}
	for _, index := range result.Escalate {
		e.again(gpumux.Piece{Span: gpumux.Span{Start: index, End: index + 1}, Rung: piece.Rung + 1})
	}
	e.recent = append(e.recent, result.Recent...)
	e.recent = e.recent[max(0, len(e.recent)-keepRecent):]
	if e.in.FailFast && result.Failed > 0 && e.fault == nil {
		for _, failed := range result.Recent {
			return faultError(fmt.Sprintf("item %d failed and the map is to fail fast: %v", failed.Index, failed.Fault), failed.Fault)
		}
		return errors.New("an item failed and the map is to fail fast")
	}
	if e.keep != nil && len(result.Results) > 0 {
		return e.keep(ctx, result.Results)
	}
	return nil
}

// hurry takes in that a chunk of a slow piece is done: what is left of such pieces may be faster.
func (e *engine) hurry(perItem gpumux.Duration) {
	for i, piece := range e.todo {
		if piece.Pace > perItem {
			e.todo[i].Pace = max(1, (piece.Pace+perItem)/2)
		}
	}
}

// again puts a piece back, in order, joined with its neighbours.
func (e *engine) again(piece gpumux.Piece) {
	at, _ := slices.BinarySearchFunc(e.todo, piece, func(a, b gpumux.Piece) int {
		if a.Rung != b.Rung {
			return a.Rung - b.Rung
		}
		return int(min(1, max(-1, a.Start-b.Start)))
	})
	if at > 0 && e.todo[at-1].Rung == piece.Rung && e.todo[at-1].End == piece.Start {
		e.todo[at-1].End, e.todo[at-1].Pace = piece.End, max(e.todo[at-1].Pace, piece.Pace)
		return
	}
	e.todo = slices.Insert(e.todo, at, piece)
}

// without takes finished spans out of the work.
func (e *engine) without(found gpumux.Found) {
	e.counts.add(found.Succeeded, found.Failed, found.Faults)
	var todo []gpumux.Piece
	for _, piece := range e.todo {
		for _, span := range found.Spans {
			if span.End <= piece.Start || span.Start >= piece.End {
				continue
			}
			if span.Start > piece.Start {
				todo = append(todo, gpumux.Piece{Span: gpumux.Span{Start: piece.Start, End: span.Start}, Rung: piece.Rung})
			}
			piece.Start = span.End
		}
		if piece.Start < piece.End {
			todo = append(todo, piece)
		}
	}
	e.todo = todo
}

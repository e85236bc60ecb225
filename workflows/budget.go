package workflows

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
	"weak"

	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
)

// The server ends a workflow whose tasks or history grow too large, and none of its code
// runs then, nor do its tasks complete while too much is under way.
const (
	// taskBytes bounds what one workflow task asks for. The server takes 4 MiB, with what
	// codecs add and what the workflow itself asks for.
	taskBytes = 2 << 20
	// maxPending bounds activities and child workflows under way, unless one map alone has
	// use for more. The server takes 2,000 of each, and is slower the more there are.
	maxPending = 200
	// historyEvents and historyBytes bound the history for the chunks of Map; the server
	// ends a workflow at 51,200 events and at 50 MiB.
	historyEvents = 40_000
	historyBytes  = 45 << 20
	// chunkEvents is what a chunk adds to the history: three events of its activity, and
	// those of the workflow tasks before and after it.
	chunkEvents = 8
	// envelope is what an activity adds to its input.
	envelope = 2 << 10
)

// budget is what the maps of one workflow have of it together. Those that find no room
// wait in the order in which they came.
type budget struct {
	pending int
	// sent is the bytes that were asked for in the workflow task that began with a history
	// of this length.
	sent, length int
	line         []*waiter
	// timing says that a timer will begin another workflow task.
	timing  bool
	engines []*engine
}

// waiter is who waits for room. While it does, wake is called when there may be some.
type waiter struct{ wake func() }

var budgets sync.Map // of *budget by weak.Pointer[workflow.Info]

// budgetOf is the budget of the workflow.
//
//workflowcheck:ignore
func budgetOf(ctx workflow.Context) *budget {
	info := workflow.GetInfo(ctx) // the same for as long as the workflow is in memory
	key := weak.Make(info)
	b, known := budgets.LoadOrStore(key, &budget{})
	if !known {
		runtime.AddCleanup(info, func(key weak.Pointer[workflow.Info]) { budgets.Delete(key) }, key)
	}
	return b.(*budget)
}

// take takes room for one activity or child workflow with so many bytes of input; release
// gives it back when that has ended. Where there is none, w is woken when there may be.
func (b *budget) take(ctx workflow.Context, w *waiter, bytes int) bool {
	b.note(ctx)
	late := b.sent > 0 && b.sent+bytes > taskBytes
	if late {
		b.beginTask(ctx)
	}
	crowded := b.pending > 0 && b.size(ctx)+bytes+b.awaited() > historyBytes
	at := slices.Index(b.line, w)
	if at < 0 {
		at = len(b.line)
		b.line = append(b.line, w)
	}
	if late || crowded || at >= b.limit()-b.pending {
		return false
	}
	b.pending++
	b.sent += bytes
	b.line = slices.Delete(b.line, at, at+1)
	return true
}

func (b *budget) note(ctx workflow.Context) {
	if length := workflow.GetInfo(ctx).GetCurrentHistoryLength(); length != b.length {
		b.sent, b.length = 0, length
	}
}

func (b *budget) beginTask(ctx workflow.Context) {
	if b.timing {
		return
	}
	b.timing = true
	workflow.Go(ctx, func(ctx workflow.Context) {
		if workflow.Sleep(ctx, time.Millisecond) == nil {
			b.sent = 0
		}
		b.timing = false
		b.wake()
	})
}

func (b *budget) leave(w *waiter) {
	if at := slices.Index(b.line, w); at >= 0 {
		b.line = slices.Delete(b.line, at, at+1)
		b.wake()
	}
}

func (b *budget) release() {
	b.pending--
	b.wake()
}

func (b *budget) limit() int {
	limit := maxPending
	for _, e := range b.engines {
		all := 0
		for _, s := range e.stages {
			all += s.sizer.Part()
		}
		limit = max(limit, min(all, maxInFlight))
	}
	return limit
}

// wake tells those for whom there may be room.
func (b *budget) wake() {
	for _, w := range b.line[:min(len(b.line), max(0, b.limit()-b.pending))] {
		if w.wake != nil {
			w.wake()
		}
	}
}

func (b *budget) wait(ctx workflow.Context, w *waiter, bytes int) error {
	woken := false
	w.wake = func() { woken = true }
	for !b.take(ctx, w, bytes) {
		woken = false
		if err := workflow.Await(ctx, func() bool { return woken }); err != nil {
			b.leave(w)
			return err
		}
	}
	return nil
}

func (b *budget) size(ctx workflow.Context) int {
	return workflow.GetInfo(ctx).GetCurrentHistorySize() + b.sent
}

// awaited is how many bytes of results the chunks under way are likely to bring.
func (b *budget) awaited() (bytes int) {
	for _, e := range b.engines {
		for _, s := range e.stages {
			bytes += s.awaited()
		}
	}
	return bytes
}

// chunks is how many more chunks the history has room for.
func (b *budget) chunks(ctx workflow.Context) int {
	return (historyEvents-workflow.GetInfo(ctx).GetCurrentHistoryLength())/chunkEvents - b.pending
}

// minItems is how many items a chunk of a stage that learns its size has at least, so
// that the history has room for all. The last chunk of each stage may have fewer.
func (b *budget) minItems(ctx workflow.Context) int64 {
	left, chunks := int64(0), int64(b.chunks(ctx))
	for _, e := range b.engines {
		for _, s := range e.stages {
			if items, size := s.todo.Items()+s.upstream(), int64(s.in.Chunk); size > 0 {
				chunks -= (items + size - 1) / size
			} else {
				left, chunks = left+items, chunks-min(1, items)
			}
		}
	}
	chunks = max(1, chunks)
	return (left + chunks - 1) / chunks
}

// join begins to count an engine, until it parts. The error is for one whose items and
// results travel in the history, which has no room for them.
func (b *budget) join(ctx workflow.Context, e *engine) error {
	if e.first().parts == "" {
		if err := b.admit(ctx, e); err != nil {
			return err
		}
	}
	b.engines = append(b.engines, e)
	return nil
}

func (b *budget) part(e *engine) {
	b.engines = slices.DeleteFunc(b.engines, func(other *engine) bool { return other == e })
	b.leave(&e.turn)
}

func (b *budget) admit(ctx workflow.Context, e *engine) error {
	b.note(ctx)
	bytes := b.size(ctx) + e.first().unsent()
	for _, other := range b.engines {
		bytes += other.first().unsent()
	}
	if bytes > historyBytes {
		return b.overflow(e, "with these items it has "+gpumux.Size(bytes).String())
	}
	chunks, size := 0, 0
	for _, s := range e.stages {
		if s.in.Chunk > 0 {
			size = s.in.Chunk
			chunks += (int(e.total) + size - 1) / size
		}
	}
	if chunks == 0 {
		return nil
	}
	if events := workflow.GetInfo(ctx).GetCurrentHistoryLength() + chunkEvents*chunks; events > historyEvents {
		return b.overflow(e, fmt.Sprintf("with %d items in chunks of %d it has %d events", e.total, size, events))
	}
	return nil
}

// full returns an error where the history has no room for another chunk of so many bytes.
func (b *budget) full(ctx workflow.Context, e *engine, bytes int) error {
	b.note(ctx)
	has, size := "", b.size(ctx)+bytes
	switch {
	case b.pending == 0 && b.chunks(ctx) < 1:
		has = fmt.Sprintf("it has %d events", workflow.GetInfo(ctx).GetCurrentHistoryLength())
	case size > historyBytes:
		has = "with the next chunk it has " + gpumux.Size(size).String()
	default:
		return nil
	}
	return b.overflow(e, fmt.Sprintf("%s, and %d of %d items are done", has, e.last().tally.Succeeded+e.failed(), e.total))
}

func (b *budget) overflow(e *engine, has string) error {
	message := fmt.Sprintf("the history of this workflow has no room for the map, which may make it %d events and %s: %s; Temporal ends a workflow at 51,200 "+
		"events or 50MiB", historyEvents, gpumux.Size(historyBytes), has)
	return errorOf(&gpumux.Fault{Kind: gpumux.FaultBadInput, Op: "start", Message: message, Task: e.in.Name(),
		Hint: "use MapSource, whose items and results lie in the store; where other maps have filled this history, run it in a child workflow of its own"})
}

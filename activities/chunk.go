package activities

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/record"
	"github.com/gpumux/gpumux/internal/recovery"
	"github.com/gpumux/gpumux/internal/store"
)

// clocks of the server and the store are at most so far apart.
const clocks = time.Minute

var (
	errTooMany = errors.New("more items failed than the map may have")
	// errGuessed ends a call whose process takes more items at a time than the map knew.
	errGuessed = errors.New("the chunk was cut before it was known how many items the task takes at a time")
)

// runChunk runs the items of a chunk that have no result yet. An error that Temporal
// retries carries the fault as its type and details; the next attempt goes on behind what
// is stored.
func (p *Pool) runChunk(ctx context.Context, chunk contract.Chunk) (contract.ChunkResult, error) {
	began := time.Now()
	a := &attempt{Pool: p, ctx: ctx, chunk: chunk}
	a.log = &faultLog{Logger: cmp.Or(p.Log, activity.GetLogger(ctx)), mapID: chunk.Map}
	if err := a.restore(); err != nil {
		return contract.ChunkResult{}, err
	}
	if a.stream != nil {
		defer a.stream.Leave()
	}
	if late(time.Since(activity.GetInfo(ctx).StartedTime)) {
		activity.RecordHeartbeat(ctx, a.ledger.snapshot("")) // waits for the answer; a refusal ends ctx
		if ctx.Err() != nil {
			return contract.ChunkResult{}, context.Cause(ctx)
		}
	}
	beating, enough := context.WithCancel(ctx)
	defer enough()
	pause := contract.PauseOf(activity.GetInfo(ctx).HeartbeatTimeout)
	stop := every(pause, func() { activity.RecordHeartbeat(beating, a.ledger.snapshot(a.waitingFor())) })
	err := a.runItems()
	if p.Saving != nil {
		defer p.Saving()()
	}
	if stored := a.flush(ctx, err == nil); err == nil {
		err = stored
	}
	if err == nil {
		enough() // what it would say is in the result
	}
	stop()
	if err != nil {
		activity.RecordHeartbeat(ctx, a.ledger.snapshot(a.waitingFor()))
		return contract.ChunkResult{}, err
	}
	out := a.ledger.finish()
	for i, r := range out.Results {
		out.Results[i] = excerpt(r)
	}
	out.Worker, out.Contact, out.Held = p.Worker, p.Contact, gpumux.Duration(time.Since(began))
	if chunk.Feeds && a.stream != nil {
		out.Written = a.ledger.written(a.stream.At())
	}
	if p.Slots != nil {
		out.Slots = p.Slots()
	}
	return out, nil
}

// late reports whether a chunk that the server gave out so long ago may be another
// worker's by now. It may also be where the clocks of server and worker disagree.
func late(age time.Duration) bool { return age > contract.Arrival || age < -contract.Ending }

type attempt struct {
	*Pool
	ctx    context.Context
	chunk  contract.Chunk
	log    *faultLog
	ledger *ledger
	// folder and stream take what is stored; nil where all results travel inline.
	folder *store.Folder
	stream *record.Stream
	// arrays are values of the stage before, by their place, where Items have none.
	arrays [][]byte
	// unkept is why a file of an item is not stored yet.
	unkept atomic.Pointer[error]
}

func (a *attempt) restore() (err error) {
	c := a.chunk
	if c.Parts != "" {
		if a.folder, err = a.Store.Folder(c.Parts); err == nil {
			err = a.folder.CheckOwner(a.ctx, c.Claim)
		}
		if err != nil {
			return classify(err)
		}
	}
	var m memo
	if activity.HasHeartbeatDetails(a.ctx) {
		if err := activity.GetHeartbeatDetails(a.ctx, &m); err != nil {
			a.log.Warn("heartbeat of the last attempt is unreadable; starting over", "error", err)
			m = memo{}
		}
	}
	info := activity.GetInfo(a.ctx)
	if a.folder != nil && m.Attempt != info.Attempt-1 {
		// The last attempt ended without a heartbeat, perhaps just after it had stored.
		found, err := a.folder.Written(a.ctx, info.ScheduledTime.Add(-clocks))
		if err != nil {
			return classify(err)
		}
		m.addWritten(found)
	}
	defer heartbeat(a.ctx, m)()
	items, err := a.Store.Sources.ItemsOf(a.ctx, c.Work)
	if errors.Is(err, fs.ErrNotExist) {
		return badInput(err, "start the map again")
	}
	if err != nil {
		return classify(err)
	}
	a.ledger = newLedger(c, items, m)
	if c.Parts == "" {
		return nil
	}
	for _, written := range m.Written {
		err := a.folder.Since(a.ctx, written, a.ledger.restore, func(damaged error) {
			a.log.Warn("what an earlier attempt stored is damaged; its items run again", "error", damaged)
		})
		if err != nil {
			return fmt.Errorf("read what earlier attempts stored: %w", err)
		}
	}
	stream, written, err := a.Recorders.Join(c.Parts, c.Claim.ID, c.Feeds)
	if err != nil {
		return classify(err)
	}
	a.stream = stream
	a.ledger.storeTo(stream.Put, written, info.Attempt)
	return a.readValues()
}

// readValues reads the results of the stage before. Items that failed there are done.
func (a *attempt) readValues() error {
	if a.chunk.Values == nil {
		return nil
	}
	folder, err := a.Store.Folder(a.chunk.Values.Folder)
	if err != nil {
		return classify(err)
	}
	a.chunk.Items, a.arrays = make([]json.RawMessage, a.chunk.Len()), make([][]byte, a.chunk.Len())
	err = folder.Values(a.ctx, a.ledger.unread(), a.chunk.Values.Parts, func(r gpumux.Result) error {
		if r.Fault != nil {
			a.ledger.pass(r)
			return nil
		}
		at, _ := a.ledger.board.at(r.Index)
		a.chunk.Items[at], a.arrays[at], a.ledger.labels[r.Index] = r.Value, r.Arrays, label{r.Key, r.Item}
		return nil
	}, func(damaged error) {
		a.log.Warn("what the stage before has stored is damaged; its items run there again", "error", damaged)
	})
	if err != nil {
		return classify(err)
	}
	a.ledger.lose(func(at int64) bool { return a.chunk.Items[at] == nil && a.arrays[at] == nil })
	return nil
}

// waitingFor returns what results wait for. People see it at the pending activity.
func (a *attempt) waitingFor() string {
	if err := a.unkept.Load(); err != nil {
		return "a file of an item waits for the store: " + (*err).Error()
	}
	if a.stream == nil {
		return ""
	}
	return a.stream.WaitingFor()
}

func (a *attempt) runItems() error {
	for {
		run, call := a.ledger.next()
		if len(run) == 0 {
			return nil
		}
		err := a.runCall(run, call)
		if err == nil || errors.Is(err, errTooMany) || errors.Is(err, errGuessed) {
			continue
		}
		if err := a.judge(run, err); err != nil {
			return err
		}
	}
}

func (a *attempt) runCall(run contract.Runs, call calls.Call) error {
	ctx, cancel := context.WithCancelCause(a.ctx)
	defer cancel(nil)
	c := a.chunk
	call.Task, call.Map, call.Mode, call.Arg, call.ArgFile = c.Task, c.Map, c.Mode, c.Arg, c.ArgFile
	call.Timeout, call.Attempts, call.RetryOn = time.Duration(c.Timeout), c.Attempts, c.RetryOn
	call.Arrays = contract.KeepsArrays(c.Parts)
	if c.Backoff {
		call.Attempts = 1 // the next try is a call of its own
	}
	call.Files = a.stream != nil && !c.Feeds // the results file names the files
	return a.Runner.Run(ctx, call, &stretch{attempt: a, calling: ctx, cancel: cancel, items: run})
}

type stretch struct {
	*attempt
	// calling is the context of the call, which cancel ends.
	calling context.Context
	cancel  context.CancelCauseFunc
	items   contract.Runs
}

// Items reads the items until the chunk's time is over. Items in the slot by then still
// run. Before each item it waits for room among the results that wait for the store.
func (s *stretch) Items() iter.Seq2[calls.Item, error] {
	return func(yield func(calls.Item, error) bool) {
		give := func(index int64, value json.RawMessage) bool {
			if s.stream != nil {
				if err := s.stream.AwaitRoom(s.calling); err != nil {
					return yield(calls.Item{}, err)
				}
			}
			value, over, err := s.ledger.take(index, value)
			return !over && yield(calls.Item{Index: index, Value: value, Arrays: s.arraysAt(index)}, err)
		}
		if s.chunk.Source != nil {
			if err := s.Store.Sources.Pick(s.calling, *s.chunk.Source, s.items, give); err != nil {
				yield(calls.Item{}, err)
			}
			return
		}
		for _, span := range s.items {
			for i := span.Start; i < span.End; i++ {
				if !give(i, s.itemAt(i)) {
					return
				}
			}
		}
	}
}

// itemAt returns an item that came with the chunk, or with the values, or of its range.
func (a *attempt) itemAt(index int64) json.RawMessage {
	if a.chunk.Range != nil {
		return strconv.AppendInt(nil, a.chunk.Range.Start+index, 10)
	}
	at, _ := a.ledger.board.at(index) // places do not change
	return a.chunk.Items[at]
}

func (a *attempt) arraysAt(index int64) []byte {
	if a.arrays == nil {
		return nil
	}
	at, _ := a.ledger.board.at(index)
	return a.arrays[at]
}

func (s *stretch) Used(use *gpumux.GPUUse) { s.ledger.used(use) }

func (s *stretch) Meet(p calls.Process) error { return s.ledger.meet(p) }

func (s *stretch) Done(done calls.Done) {
	result, later, ended := s.ledger.add(done)
	if at, ok := s.ledger.board.at(result.Index); ok && s.arrays != nil {
		s.chunk.Items[at], s.arrays[at] = nil, nil
	}
	if result.Fault != nil {
		s.log.item(result, later)
	}
	if ended {
		s.cancel(errTooMany)
	}
}

// Keep stores a file of an item, however often that takes: a store that is full or away
// holds up the item. The error is why ctx ended. Heartbeats go on meanwhile, and say what
// it waits for.
func (s *stretch) Keep(ctx context.Context, index int64, name string, file *os.File) error {
	defer s.unkept.Store(nil)
	for delay := record.FirstRetry; ; delay = min(2*delay, record.LastRetry) {
		info, err := file.Stat()
		if err == nil {
			_, err = file.Seek(0, io.SeekStart)
		}
		if err == nil {
			err = s.folder.KeepFile(ctx, index, name, file, info.Size())
		}
		if err == nil {
			return nil
		}
		s.unkept.Store(&err)
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// judge decides what an error of a call means. Nil goes on with the chunk.
func (a *attempt) judge(spans contract.Runs, err error) error {
	var fault *gpumux.Fault
	switch {
	case a.ctx.Err() != nil && errors.Is(context.Cause(a.ctx), worker.ErrWorkerShutdown):
		return quietly(retry(&gpumux.Fault{Kind: gpumux.FaultCanceled, Op: "run", Message: "the worker shuts down; the chunk goes on elsewhere"}, retryDelay))
	case a.ctx.Err() != nil:
		// The cause says whether it was a cancellation, a pause or a reset of the activity.
		return context.Cause(a.ctx)
	case errors.Is(err, ErrBusy):
		return busy()
	case !errors.As(err, &fault):
		return classify(err)
	}
	d := a.ledger.judge(spans, fault)
	if d.Step == recovery.Elsewhere {
		now := a.ledger.snapshot("")
		return a.elsewhere(a.ctx, fault, now.edition(a.chunk), now.Refused)
	}
	what := "item ended its process; "
	if d.Index < 0 {
		what = "no item is to blame; "
	}
	a.log.Warn(what+d.Text, a.log.fields(fault, d.Index)...)
	switch d.Step {
	case recovery.End:
		return quietly(final(fault))
	case recovery.Wait:
		return quietly(retry(fault, 0))
	case recovery.Rerun:
		if a.stream == nil {
			return nil // another attempt would lack the results so far
		}
		return quietly(retry(fault, retryDelay))
	}
	return nil
}

// flush stores what has finished. With insist it does not give up: a store that is full
// or away holds up the chunk, but not the slot, and no result is lost.
func (a *attempt) flush(ctx context.Context, insist bool) error {
	if a.stream == nil {
		return nil
	}
	if !insist {
		// The activity's context may have ended already.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
	}
	return a.stream.Flush(ctx)
}

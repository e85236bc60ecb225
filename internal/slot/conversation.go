package slot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/diagnosis"
	"github.com/gpumux/gpumux/internal/session"
	"github.com/gpumux/gpumux/internal/wire"
)

// conversation feeds a call's items to one process and takes its answers. It owns what is
// in flight. A *deathError or *lostError tells its owner to end the process.
type conversation struct {
	job   *job
	call  *calls.Call
	slot  *Slot
	queue *queue
	p     *occupant
	// items are in flight, in order. The first of them has run since began.
	items []calls.Item
	began time.Time
	// memory is the array behind items, which each frame reuses.
	memory []calls.Item
}

// run runs items until all in flight are answered and none is ready, or the process has
// run as many as it may.
func (c *conversation) run(ctx context.Context) error {
	timeout := c.call.Timeout
	tick, late := time.NewTicker(lookEvery), time.NewTimer(math.MaxInt64)
	defer tick.Stop()
	defer late.Stop()
	for {
		if err := c.feed(); err != nil {
			return err
		}
		c.publish()
		if len(c.items) == 0 {
			// The process trims only if it gets more items afterwards.
			if !c.p.account.TakesTrim() || c.p.account.Full() {
				return nil
			}
			if known, there, _ := c.queue.ready(1, 1); !known || there == 0 {
				return nil
			}
			if err := c.job.owner.trim(ctx); err != nil {
				return err
			}
			continue
		}
		if timeout > 0 {
			late.Reset(time.Until(c.began.Add(timeout)))
		}
		var then func() error
		select {
		case <-c.queue.news:
			continue
		case message := <-c.p.session.Heard:
			then = func() error { return c.hear(ctx, message) }
		case <-c.slot.doom:
			then = c.doomed
		case <-late.C:
			then = func() error { return c.late(ctx) }
		case <-tick.C:
			then = c.look
		case <-ctx.Done():
			err := context.Cause(ctx)
			if !errors.Is(err, calls.ErrLapsed) {
				_ = c.look() // the call ends anyway: an error of this look changes nothing
			}
			return err
		}
		if err := c.job.held(); err != nil {
			return err
		}
		if err := then(); err != nil {
			return err
		}
	}
}

// feed gives a process that runs low of items its next frame. It waits for half of the
// frame; for an idle process one micro-batch is enough. A process with a message unread
// gets nothing.
func (c *conversation) feed() error {
	a, idle := c.p.account, len(c.items) == 0
	if !idle && !a.Low(len(c.items)) || c.p.session.Unread() > 1 || a.WantsTrim() {
		return nil
	}
	size, unit := a.Next(c.job.finished)
	least := min(size, max(unit, size/2))
	if idle {
		least = min(size, unit)
		c.job.least, c.job.size = max(1, least), max(1, size)
	}
	kept := append(c.memory[:0], c.items...)
	c.items = c.queue.take(kept, least, size, unit)
	c.memory = c.items
	items := c.items[len(kept):]
	if len(items) == 0 {
		return nil
	}
	now := time.Now()
	run := wire.Run{Run: a.Sent(len(items)), Attempts: c.call.Attempts, Trace: c.call.Trace, Items: make([]json.RawMessage, len(items))}
	for i := range items {
		items[i].Run, items[i].N, items[i].Sent = run.Run, i, now
		run.Items[i] = items[i].Value
	}
	if idle {
		c.began = now
	}
	// A lease's process may run another function than it was loaded with.
	if want := cmp.Or(c.call.Target, c.job.task.Target()); c.p.lease != "" && want != c.p.target {
		run.Target, run.Task = want, c.job.task.Name
	}
	if c.job.fresh {
		run.Attempts = 1
	}
	if c.call.Keep != nil {
		run.Folder = c.job.owner.scratch.folder(c.p)
	}
	return c.say(run)
}

// say tells the process a message.
func (c *conversation) say(m wire.Message) error {
	if !c.p.session.Say(m) {
		return broken(diagnosis.Deaf)
	}
	return nil
}

// publish shows others which item runs.
func (c *conversation) publish() {
	switch {
	case len(c.items) == 0:
		c.slot.runs(0, time.Time{})
	case c.call.Lease != "":
		c.slot.runs(-1, c.began)
	default:
		c.slot.runs(c.items[0].Index, c.began)
	}
}

// hear takes in one message; nil is the end of the wire.
func (c *conversation) hear(ctx context.Context, message wire.Message) error {
	switch m := message.(type) {
	case wire.Posted:
		if err := c.read(m.Board, m.Allocators); err != nil || !m.Wait {
			return err
		}
		return c.goOn()
	case wire.Results:
		if err := c.read(m.Board, m.Allocators); err != nil {
			return err
		}
		return c.results(ctx, m)
	case wire.Fault:
		if err := c.read(m.Board, m.Allocators); err != nil {
			return err
		}
		return c.raised(m)
	case wire.ProgressReport:
		if err := c.read(m.Board, nil); err != nil {
			return err
		}
		c.publish()
		c.slot.progressed(m.Value)
		c.began = time.Now()
	case wire.Cap:
		if !c.p.session.Capped(m) {
			return broken(diagnosis.Deaf)
		}
	case wire.Kept:
		c.slot.tally(func(st *Stats) { st.Residents, st.ResidentBytes = m.Count, m.Bytes })
	default:
		if message != nil {
			return broken("a message out of turn: %T", message)
		}
		death := &deathError{evidence: c.p.session.Death(nil)}
		// Items that it finished before its end count.
		if err := c.look(); err != nil {
			return err
		}
		if len(c.items) > 0 {
			return death
		}
		return &lostError{"ended between two items"}
	}
	return nil
}

// look reads the results that are on the board now.
func (c *conversation) look() error { return c.read(c.p.session.Board.Published(), nil) }

// read reads the board up to the offset end, and stores the report on allocators that
// came with it.
func (c *conversation) read(end uint64, allocators *wire.Allocators) error {
	c.p.session.Memory.Told(allocators)
	records, wrong := c.p.session.Board.Read(end)
	if err := c.answered(records, nil); err != nil {
		return err
	}
	if wrong != nil {
		return broken("%v", wrong)
	}
	return nil
}

// results takes in the values of a frame. The process may go on meanwhile.
func (c *conversation) results(ctx context.Context, m wire.Results) error {
	if !c.due(m.Run, m.N) || len(m.Values) > len(c.items) {
		return broken("results for item %d of run %d, which is not its turn", m.N, m.Run)
	}
	if m.Wait {
		if err := c.goOn(); err != nil {
			return err
		}
	}
	if len(m.Files) > 0 {
		if err := c.keep(ctx, m); err != nil {
			return err
		}
	}
	return c.answered(m.Records(), m.Files)
}

// keep hands on the files of the item that was answered.
func (c *conversation) keep(ctx context.Context, m wire.Results) error {
	item, keep := fmt.Sprintf("%d-%d", m.Run, m.N), c.call.Keep
	if c.p.folder == "" || keep == nil || c.job.left {
		return broken("item %s has files, and was given no folder for them", item)
	}
	err := eachFile(c.p.folder, item, m.Files, func(name string, file *os.File) error {
		return keep(ctx, c.items[0].Index, name, file)
	})
	return cmp.Or(err, c.job.held())
}

// answered hands on results. Those of one micro-batch ended together and share their
// peak. The files belong to the first item.
func (c *conversation) answered(records []wire.Record, files []string) error {
	if len(records) == 0 {
		return nil
	}
	now, at := time.Now(), session.Clock()
	busy, peaks, peak := 0.0, int64(0), int64(0)
	for i, r := range records {
		if !c.due(r.Run, r.N) {
			return broken("a result for item %d of run %d on the board, which is not its turn", r.N, r.Run)
		}
		result, err := resultOf(c.p.session.Task, c.call.Arrays, r)
		if err != nil {
			return broken("the result of item %d of run %d: %v", r.N, r.Run, err)
		}
		if i == 0 || r.Ended != records[i-1].Ended {
			together := 0.0
			for _, same := range records[i:] {
				if same.Ended != r.Ended {
					break
				}
				together += same.Busy
			}
			peak = c.p.session.Memory.PeakOf(now, duration(together), r.Peak)
			peaks = max(peaks, peak)
		}
		busy += r.Busy
		result.Printed, result.Files, files = c.p.session.Process.Out.UpTo(r.Out), files, nil
		ended := time.Time{}
		if c.call.Trace != "" {
			ended = now.Add(-duration(at - r.Ended))
		}
		c.finish(result, r.Busy, peak, ended)
	}
	c.p.account.Ended(len(records), busy, peaks)
	c.slot.tally(func(st *Stats) { st.Items += int64(len(records)) })
	// The next item began when the last one ended by the process's clock, but not before it
	// was sent.
	ended := now.Add(-duration(at - records[len(records)-1].Ended))
	if next := c.first(); next != nil && ended.Before(next.Sent) {
		ended = next.Sent
	}
	if ended.Before(c.began) || !ended.Before(now) {
		ended = now
	}
	c.began = ended
	return nil
}

// finish hands on the result of the first item in flight.
func (c *conversation) finish(r gpumux.Result, busy float64, peak int64, ended time.Time) {
	r.Index = c.items[0].Index
	c.items[0].Value = nil // it may be large
	c.items = c.items[1:]
	c.p.account.Finished()
	c.job.finished++
	c.job.done(calls.Done{Result: r, Busy: duration(busy), Ended: ended, Peak: peak, Budget: int64(c.p.session.Memory.Budget), Batch: c.p.account.Unit()})
}

// raised decides what an exception means: the item's own fault, one more try, or the end
// of the process.
func (c *conversation) raised(m wire.Fault) error {
	if !c.due(m.Run, m.N) {
		return broken("a fault for item %d of run %d, which is not its turn", m.N, m.Run)
	}
	running := c.items[0]
	fault, output, death := c.job.judge.raised(c.p, m, &running)
	if death != nil {
		return death
	}
	if c.job.fresh && fault.Attempts < c.call.Attempts {
		running.Tries++
		c.items = c.items[1:]
		c.queue.back(running)
		c.p.account.Finished()
		return nil
	}
	peak := c.p.session.Memory.PeakOf(time.Now(), duration(m.Busy), m.Peak)
	c.finish(gpumux.Result{Fault: fault, Printed: output}, m.Busy, peak, time.Time{})
	c.p.account.Ended(1, m.Busy, peak)
	c.slot.tally(func(st *Stats) { st.Items++ })
	return c.goOn()
}

// goOn tells a process that waits for its results to be read that it may go on.
func (c *conversation) goOn() error {
	c.began = time.Now()
	return c.say(wire.Next{})
}

// doomed returns the death of a process that is to be recycled, after reading its last
// results.
func (c *conversation) doomed() error {
	why := c.slot.doomedNow()
	if why == "" {
		return nil
	}
	if err := c.look(); err != nil {
		return err
	}
	return &deathError{evidence: &diagnosis.Evidence{Recycled: why}}
}

// late ends the process of an item that takes too long, or finds that the item did end in
// time after all: what the process finished until it was gone counts.
func (c *conversation) late(ctx context.Context) error {
	// A result that has come in time counts, however late it is read.
	select {
	case message := <-c.p.session.Heard:
		return c.hear(ctx, message)
	default:
	}
	if err := c.look(); err != nil {
		return err
	}
	if len(c.items) == 0 || time.Since(c.began) < c.call.Timeout {
		return nil
	}
	process := c.p.session.Process
	e, stacks := &diagnosis.Evidence{TimedOut: true, Message: fmt.Sprintf("no result after %s", c.call.Timeout), Tail: process.Out.Tail()}, c.p.session.Stacks()
	c.p.charge = c.job.judge.fault(c.p, *e, c.first())
	c.p.charge.Traceback = stacks
	process.Destroy()
	if err := c.job.held(); err != nil {
		return err
	}
	late := c.items[0]
	if err := c.look(); err != nil {
		return err
	}
	if c.due(late.Run, late.N) {
		return &deathError{e, stacks}
	}
	// The item ended between the two looks, so the kill hit a later one, which is not late.
	c.queue.back(c.items...)
	c.items = nil
	return &lostError{"an item ended at the moment of its timeout"}
}

// first is the item whose turn it is, or nil.
func (c *conversation) first() *calls.Item {
	if len(c.items) == 0 {
		return nil
	}
	return &c.items[0]
}

// due reports whether it is the turn of this item.
func (c *conversation) due(run int64, n int) bool {
	return len(c.items) > 0 && c.items[0].Run == run && c.items[0].N == n
}

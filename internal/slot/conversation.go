package slot

import (
	"context"
	"errors"
	"fmt"
	"syscall"
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
	job    *job
	p      *occupant
	flight flight
}

// run runs items until none is there or the process has run its limit.
func (c *conversation) run(ctx context.Context) error {
	timeout := c.job.call.timeout()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	late := time.NewTimer(time.Hour)
	defer late.Stop()
	for {
		if c.hungry() && !c.p.account.WantsTrim() {
			if err := c.feed(); err != nil {
				return err
			}
		}
		c.publish()
		if len(c.flight.items) == 0 {
			trimmed, err := c.between(ctx)
			if trimmed {
				continue
			}
			return err
		}
		if timeout > 0 {
			late.Reset(time.Until(c.flight.began.Add(timeout)))
		} else {
			late.Stop()
		}
		var then func() error
		select {
		case <-c.job.queue.news:
			continue
		case h := <-c.p.session.Heard:
			then = func() error { return c.hear(ctx, h) }
		case <-c.job.slot.doom:
			then = c.doomed
		case <-late.C:
			then = func() error { return c.late(ctx, timeout) }
		case <-tick.C:
			then = c.look
		case <-ctx.Done():
			c.drain(ctx)
			return context.Cause(ctx)
		}
		if err := c.job.lapsed(); err != nil {
			return err
		}
		if err := then(); err != nil {
			return err
		}
	}
}

// hungry reports whether the process runs low of items. One that has not read what it was
// given gets no more, however few items that is.
func (c *conversation) hungry() bool {
	return len(c.flight.items) == 0 ||
		c.p.account.Low(len(c.flight.items)) && c.p.session.Unread() <= 1
}

// feed gives the process its next frame. It gives nothing until half of the items are
// there or, where the process has none left, those of one micro-batch.
func (c *conversation) feed() error {
	a, q := c.p.account, c.job.queue
	size, unit := a.Next(c.job.finished)
	least := min(size, max(unit, size/2))
	if len(c.flight.items) == 0 {
		least = min(size, unit)
		c.job.least, c.job.size = max(1, least), max(1, size)
	}
	enough, there, over := q.ready(least, size)
	if !enough {
		return nil
	}
	if there < size && there > unit && !over {
		there = there / unit * unit
	}
	run := wire.Run{Run: a.Frame(), Attempts: c.job.call.Attempts}
	run.Items = c.flight.launch(q, min(size, there), run.Run)
	if len(run.Items) == 0 {
		return nil
	}
	a.Sent(len(run.Items))
	if size > unit && len(run.Items) == there && !over {
		// The next ones are on their way while these short ones run.
		q.ask(size)
	}
	run.Target, run.Task = c.p.otherTarget(c.job.call)
	if c.job.fresh {
		run.Attempts = 1
	}
	if c.job.call.Keep != nil {
		run.Folder = c.job.owner.scratch.folder(c.p)
	}
	if !c.p.session.Say(run) {
		return deaf()
	}
	return nil
}

// publish shows the item whose turn it is to others.
func (c *conversation) publish() {
	switch {
	case len(c.flight.items) == 0:
		c.job.slot.runs(0, time.Time{})
	case c.job.call.Lease != "":
		c.job.slot.runs(-1, c.flight.began)
	default:
		c.job.slot.runs(c.flight.items[0].Index, c.flight.began)
	}
}

// between lets the process trim if that is due, no item is in flight and more wait.
func (c *conversation) between(ctx context.Context) (trimmed bool, err error) {
	if !c.p.account.TakesTrim() {
		return false, nil
	}
	if enough, there, _ := c.job.queue.ready(1, 1); !enough || there == 0 || c.p.account.Full() {
		return false, nil
	}
	err = c.job.owner.trim(ctx)
	return err == nil, err
}

// goOn lets a process go on that waits until its results were read.
func (c *conversation) goOn(waits bool) error {
	if !waits {
		return nil
	}
	c.flight.began = time.Now()
	if !c.p.session.Say(wire.Next{}) {
		return deaf()
	}
	return nil
}

// hear takes in one message.
func (c *conversation) hear(ctx context.Context, h session.Heard) error {
	switch m := h.Message.(type) {
	case wire.Posted:
		if err := c.told(m.Board, m.Allocators); err != nil {
			return err
		}
		return c.goOn(m.Wait)
	case wire.Results:
		if err := c.told(m.Board, m.Allocators); err != nil {
			return err
		}
		return c.results(ctx, m)
	case wire.Fault:
		if err := c.told(m.Board, m.Allocators); err != nil {
			return err
		}
		return c.raised(m)
	case wire.ProgressReport:
		if err := c.read(m.Board); err != nil {
			return err
		}
		c.publish()
		c.job.slot.progressed(m.Value)
		c.flight.began = time.Now()
	case wire.Cap:
		if !c.p.session.Capped(m) {
			return deaf()
		}
	case wire.Kept:
		c.job.slot.tally(func(st *Stats) { st.Residents, st.ResidentBytes = m.Count, m.Bytes })
	default:
		if h.Err == nil {
			return broken("a message out of turn: %T", h.Message)
		}
		death := &deathError{evidence: c.p.session.Death(h.Err)}
		// What it finished until it was gone counts.
		if err := c.look(); err != nil {
			return err
		}
		if len(c.flight.items) > 0 {
			return death
		}
		return &lostError{"ended between two items"}
	}
	return nil
}

// told takes in what comes before an answer.
func (c *conversation) told(board uint64, allocators *wire.Allocators) error {
	c.p.session.Memory.Told(allocators)
	return c.read(board)
}

// look takes in the results that lie on the board now.
func (c *conversation) look() error { return c.read(c.p.session.Board.Published()) }

// read takes in the results on the board up to the offset end.
func (c *conversation) read(end uint64) error {
	records, err := c.p.session.Board.Read(end)
	if taken := c.answered(records, nil); taken != nil {
		return taken
	}
	if err != nil {
		return broken("%v", err)
	}
	return nil
}

// results takes in the values of a frame. The process may go on meanwhile.
func (c *conversation) results(ctx context.Context, m wire.Results) error {
	if !c.flight.due(m.Run, m.N) || len(m.Values) > len(c.flight.items) {
		return broken("results for item %d of run %d, which is not its turn", m.N, m.Run)
	}
	if err := c.goOn(m.Wait); err != nil {
		return err
	}
	if len(m.Files) > 0 {
		if err := c.job.keep(ctx, c.p, c.flight.items[0].Index, m); err != nil {
			return err
		}
	}
	return c.answered(m.Records(), m.Files)
}

// answered hands on results. Those of one micro-batch ended together and share their
// peak. The files are those of the first item.
func (c *conversation) answered(records []wire.Record, files []string) error {
	if len(records) == 0 {
		return nil
	}
	now, at := time.Now(), session.Clock()
	busy, peaks, peak := 0.0, int64(0), int64(0)
	for i, r := range records {
		if !c.flight.due(r.Run, r.N) {
			return broken("a result for item %d of run %d on the board, which is not its turn", r.N, r.Run)
		}
		result, err := resultOf(c.p.session.Task, c.job.call.Arrays, r.Kind, r.Value)
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
		result.Output, result.Files, files = c.p.session.Process.Out.UpTo(r.Out), files, nil
		c.finish(result, r.Busy, peak)
	}
	c.p.account.Ended(len(records), busy, peaks)
	c.job.slot.tally(func(st *Stats) { st.Items += int64(len(records)) })
	c.flight.landed(now.Add(-duration(at-records[len(records)-1].Ended)), now)
	return nil
}

// raised decides what an exception means: the item's own fault, one more try, or the end
// of the process.
func (c *conversation) raised(m wire.Fault) error {
	if !c.flight.due(m.Run, m.N) {
		return broken("a fault for item %d of run %d, which is not its turn", m.N, m.Run)
	}
	running := c.flight.items[0]
	fault, output, death := c.job.owner.judge.raised(c.p, m, &running)
	if death != nil {
		return death
	}
	if c.job.fresh && fault.Attempts < c.job.call.Attempts {
		running.tries++
		c.flight.land()
		c.job.queue.back(running)
		c.p.account.Finished()
		return nil
	}
	peak := c.p.session.Memory.PeakOf(time.Now(), duration(m.Busy), m.Peak)
	c.finish(gpumux.Result{Fault: fault, Output: output}, m.Busy, peak)
	c.p.account.Ended(1, m.Busy, peak)
	c.job.slot.tally(func(st *Stats) { st.Items++ })
	return c.goOn(true)
}

// finish hands on the result of the first item in flight.
func (c *conversation) finish(r gpumux.Result, busy float64, peak int64) {
	r.Index = c.flight.land()
	c.p.account.Finished()
	c.job.done(calls.Done{Result: r, Busy: duration(busy), Peak: peak, Budget: int64(c.p.session.Memory.Budget), Batch: c.p.account.Unit()})
}

// doomed ends a process that is to be recycled; what it has finished counts.
func (c *conversation) doomed() error {
	why := c.job.slot.doomedNow()
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
func (c *conversation) late(ctx context.Context, timeout time.Duration) error {
	// A result that has come in time counts, however late it is read.
	select {
	case h := <-c.p.session.Heard:
		return c.hear(ctx, h)
	default:
	}
	if err := c.look(); err != nil {
		return err
	}
	if len(c.flight.items) == 0 || time.Since(c.flight.began) < timeout {
		return nil
	}
	process := c.p.session.Process
	e := &diagnosis.Evidence{TimedOut: true, Message: fmt.Sprintf("no result after %s", timeout), Tail: process.Out.Tail()}
	stacks := c.p.session.Stacks()
	c.p.charge = c.job.owner.judge.fault(c.p, *e, c.flight.first())
	c.p.charge.Traceback = stacks
	process.Destroy()
	if err := c.job.lapsed(); err != nil {
		return err
	}
	late := c.flight.items[0]
	if err := c.look(); err != nil {
		return err
	}
	if c.flight.due(late.run, late.n) {
		return &deathError{e, stacks}
	}
	// It ended between the two looks, and the process in the middle of an innocent one.
	c.job.queue.back(c.flight.items...)
	c.flight.items = nil
	return &lostError{"an item ended at the moment of its timeout"}
}

// drain tells the process to end in the middle of a call. What it had finished by then
// counts, however far its results have come, unless the call's time is over.
func (c *conversation) drain(ctx context.Context) {
	if errors.Is(context.Cause(ctx), calls.ErrLapsed) {
		return
	}
	p := c.p.session
	p.Process.Signal(syscall.SIGTERM)
	over := make(chan struct{})
	defer time.AfterFunc(c.job.owner.o.Grace, func() { close(over) }).Stop()
	for len(c.flight.items) > 0 {
		select {
		case h := <-p.Heard:
			switch h.Message.(type) {
			case wire.Results, wire.Posted, wire.ProgressReport:
				if c.hear(ctx, h) != nil {
					return
				}
				continue
			case wire.Cap, wire.Kept:
				continue
			}
		case <-over:
		}
		break
	}
	if p.Board != nil {
		select {
		case <-p.Process.Exited:
		case <-over:
		}
		p.Process.Destroy()
		_ = c.look() // what is wrong with it ends no call that ends already
	}
}

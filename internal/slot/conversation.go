package slot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/diagnosis"
	"github.com/gpumux/gpumux/internal/text"
	"github.com/gpumux/gpumux/internal/wire"
)

// conversation feeds the items of a job to one process and hears its answers. It owns
// what is in flight. A *deathError or *lostError tells its owner to end the process.
type conversation struct {
	answers
	// suspects are the items to blame for a death, if not all that run.
	suspects []item
}

// run runs items until all in flight are answered and none is ready, or the process has
// run as many as it may.
func (c *conversation) run(ctx context.Context) error {
	tick, late := time.NewTicker(lookEvery), time.NewTimer(math.MaxInt64)
	defer tick.Stop()
	defer late.Stop()
	for {
		if err := c.feed(); err != nil {
			return err
		}
		c.publish()
		if len(c.flight.items) == 0 {
			return nil
		}
		if c.flight.concurrent > 0 {
			c.job.calls.endFinished()
			c.job.offer()
		}
		if deadline := c.flight.deadline(); !deadline.IsZero() {
			late.Reset(time.Until(deadline))
		}
		var then func() error
		select {
		case <-c.job.calls.news:
			continue
		case message := <-c.p.session.Heard:
			then = func() error { return c.hear(message) }
		case r := <-c.job.joins():
			then = func() error { c.job.join(r); return nil }
		case <-c.job.calls.gone:
			then = c.cancel
		case <-c.slot.doom:
			then = c.doomed
		case <-late.C:
			then = c.late
		case <-tick.C:
			then = c.check
		case <-ctx.Done():
			err := context.Cause(ctx)
			if !errors.Is(err, calls.ErrLapsed) {
				_ = c.look() // the calls end anyway: an error of this look changes nothing
			}
			return err
		}
		if err := c.job.calls.held(); err != nil {
			return err
		}
		if err := then(); err != nil {
			return err
		}
	}
}

func (c *conversation) blamed() []item {
	if c.suspects != nil {
		return c.suspects
	}
	return c.flight.running(c.p.account.inBatch())
}

// feed gives a process that runs low of items its next ones. It waits for half of a
// frame; for an idle process one micro-batch is enough, and one item for a process that
// runs many at the same time. A process with a message unread gets nothing.
func (c *conversation) feed() error {
	a, idle := c.p.account, len(c.flight.items) == 0
	if !idle && !a.low(len(c.flight.items)) || c.p.session.Unread() > 1 || a.grown(idle) {
		return nil
	}
	size, unit := a.next(len(c.flight.items), c.job.finished)
	enough := min(size, max(unit, size/2))
	if idle || a.concurrent > 0 {
		enough = min(size, unit)
	}
	if idle {
		c.job.enough, c.job.size = max(1, enough), max(1, size)
	}
	for _, each := range c.job.calls.list {
		if size <= 0 || c.p.session.Unread() > 1 {
			break
		}
		sent, err := c.feedOf(each, enough, size, unit)
		if err != nil {
			return err
		}
		size -= sent
	}
	return nil
}

func (c *conversation) feedOf(each *call, enough, n, unit int) (sent int, err error) {
	idle := len(c.flight.items) == 0
	items := c.flight.add(each, enough, n, unit)
	if len(items) == 0 {
		return 0, nil
	}
	now := time.Now()
	run := wire.Run{Run: c.p.account.send(len(items)), Attempts: each.Attempts, RetryOn: each.RetryOn, Items: make([]json.RawMessage, len(items))}
	limit := each.Timeout
	if c.flight.concurrent > 0 && limit > 0 {
		run.Timeout, limit = limit.Seconds(), limit+c.job.o.Grace // the process has that long to end one by itself
	}
	for i := range items {
		items[i].run, items[i].n, items[i].sent, items[i].began, items[i].limit = run.Run, i, now, time.Time{}, limit
		if items[i].Arrays == nil || !c.p.kinds {
			run.Items[i] = items[i].text()
			continue
		}
		if run.Kinds == nil {
			run.Kinds = make([]wire.Kind, len(items))
		}
		run.Kinds[i], run.Items[i] = wire.Kind(items[i].Arrays[0]), items[i].Arrays[1:]
	}
	if idle || c.flight.concurrent > 0 {
		c.flight.begin(now)
	}
	if c.job.fresh {
		run.Attempts = 1
	}
	if each.Files {
		run.Folder = c.job.owner.scratch.folder(c.p)
	}
	return len(items), c.say(run)
}

// cancel lets go of calls whose callers have given up while others go on. If the items of
// one may run elsewhere, the process ends at once. Else it is told to end them.
func (c *conversation) cancel() error {
	c.job.unpark()
	for _, each := range slices.Clone(c.job.calls.list) {
		if each.ctx.Err() == nil || !each.canceled.IsZero() || c.job.calls.ctx.Err() != nil {
			continue
		}
		if cause := context.Cause(each.ctx); errors.Is(cause, calls.ErrLapsed) {
			each.err = cause
			return &lostError{"the time of a call was over"}
		}
		each.queue.leave()
		if each.inFlight == 0 {
			c.job.calls.end(each, context.Cause(each.ctx))
			continue
		}
		each.canceled = time.Now()
		if err := c.say(wire.Cancel{Runs: c.flight.runs(each)}); err != nil {
			return err
		}
	}
	return nil
}

// check looks for results, and ends a process that does not let go of cancelled items.
func (c *conversation) check() error {
	for _, each := range c.job.calls.list {
		if !each.canceled.IsZero() && time.Since(each.canceled) > c.job.o.Grace {
			each.err = context.Cause(each.ctx)
			return &lostError{"it did not end the items of a call that was cancelled"}
		}
	}
	return c.look()
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
func (c *conversation) late() error {
	// A result that has come in time counts, however late it is read.
	select {
	case message := <-c.p.session.Heard:
		return c.hear(message)
	default:
	}
	if err := c.look(); err != nil {
		return err
	}
	suspects := c.flight.suspects()
	if len(suspects) == 0 {
		return nil
	}
	process := c.p.session.Process
	e := overTime(suspects[slices.IndexFunc(suspects, item.overdue)].call.Timeout)
	e.Tail = process.Out.Tail() // before the stacks are printed
	stacks := c.p.session.Stacks()
	fault := c.job.judge.fault(c.p, *e)
	fault.Traceback = stacks
	c.charge(fault, suspects) // for the callers, should the process not end
	process.Destroy()
	for _, each := range c.job.calls.list {
		each.err = nil
	}
	if err := c.job.calls.held(); err != nil {
		return err
	}
	if err := c.look(); err != nil {
		return err
	}
	suspects = slices.DeleteFunc(suspects, func(one item) bool { return c.flight.find(one.run, one.n) < 0 })
	if slices.ContainsFunc(suspects, item.overdue) {
		c.suspects = suspects
		return &deathError{e, stacks}
	}
	// The item ended between the two looks, so the kill hit others, which are not late.
	return &lostError{"an item ended at the moment of its timeout"}
}

// charge books a death against those calls that the suspects are of, or against all where
// there are none, or nobody is to blame.
func (c *conversation) charge(fault *gpumux.Fault, suspects []item) {
	running, repeated := len(c.flight.running(c.p.account.inBatch())), false
	for _, each := range c.job.calls.list {
		charged, batch := *fault, 0
		var first *item
		for i := range suspects {
			if suspects[i].call == each {
				first = cmp.Or(first, &suspects[i])
				batch++
			}
		}
		if first == nil && len(suspects) > 0 && !fault.Blameless {
			continue
		}
		if charged.Concurrent = c.flight.concurrent > 0; charged.Concurrent {
			charged.Batch = batch
		}
		charged.Alone = c.p.account.ran == 0 && charged.Batch <= 1 && (running <= 1 || !charged.Concurrent)
		if first != nil && charged.Batch <= 1 {
			charged.Item = text.Excerpt(first.outline())
		}
		charged.Repeated, repeated = repeated, true
		each.fail(charged)
	}
}

// giveBack returns the items in flight to their queues, and ends the calls that have a
// reason to.
func (c *conversation) giveBack() {
	for _, each := range slices.Clone(c.job.calls.list) {
		if each.err != nil || each.ctx.Err() != nil {
			c.job.calls.end(each, context.Cause(each.ctx))
			continue
		}
		c.flight.giveBack(each)
	}
	c.flight.items = nil
}

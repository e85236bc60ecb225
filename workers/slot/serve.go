package slot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/logkey"
	"github.com/gpumux/gpumux/workers/slot/diagnosis"
	"github.com/gpumux/gpumux/workers/slot/intake"
	"github.com/gpumux/gpumux/workers/slot/process"
	"github.com/gpumux/gpumux/workers/slot/session"
	"github.com/gpumux/gpumux/workers/slot/wire"
)

// lookEvery is how often the board is looked at, and whether the call's time is over, while no message comes.
const lookEvery = 200 * time.Millisecond

// serve runs one call. It returns with the process ready for the next one, or with none.
func (s *Slot) serve(ctx context.Context, call order) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.life, func() { cancel(ErrStopped) })()
	f := &flow{ctx: ctx, call: call, fresh: call.mode(s.o.Mode) == gpumux.Fresh, intake: intake.New(call.Items, frameBytes)}
	s.flow = f
	defer f.intake.End(ctx)
	defer s.runs(0, time.Time{})
	s.kills = process.MemoryKills()
	if len(call.Task.Command) > 0 {
		return s.serveCommand(ctx, f)
	}
	for {
		more, err := s.await(ctx, f)
		if err != nil || !more {
			return err
		}
		p, err := s.ready(ctx, f)
		if err != nil {
			return err
		}
		f.call.Clean = false
		s.enter(Busy, "items of "+call.Task.Name)
		if err := s.work(ctx, p, f); err != nil {
			return err
		}
		switch {
		case s.process == nil: // it ended between two items
		case p.full():
			s.expire(p, f.fresh)
		default:
			s.enter(Ready, "items finished")
		}
	}
}

// await says whether there are items to run, when that is known. The process has nothing to do meanwhile.
func (s *Slot) await(ctx context.Context, f *flow) (more bool, err error) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for !f.gather(max(1, f.least), max(1, f.size)) {
		select {
		case <-f.intake.News():
		case <-s.doom:
			if why := s.doomedNow(); why != "" {
				s.retire(false, why)
			}
		case <-tick.C:
			if err := f.call.lapsed(); err != nil {
				return false, err
			}
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
	switch err := f.intake.Failure(); {
	case !f.empty():
		return true, nil
	case err != nil && ctx.Err() != nil:
		// The source has only seen it first.
		return false, context.Cause(ctx)
	default:
		return false, err
	}
}

// feed hands the process its next frame, as far as its items are there.
func (s *Slot) feed(p *occupant, f *flow) error {
	first := len(f.flight) == 0
	run := f.frame(p)
	if len(run.Items) == 0 {
		return nil
	}
	if first {
		f.began = f.flight[0].sent
	}
	if f.call.Keep != nil {
		run.Folder = s.folderOf(p)
	}
	p.runs++
	p.sent += len(run.Items)
	if !p.Say(run) {
		return s.fail(p, deaf(), "")
	}
	return nil
}

// goOn lets a process go on that waits until its results were read.
func (s *Slot) goOn(p *occupant, f *flow, waits bool) error {
	if !waits {
		return nil
	}
	f.began = time.Now()
	if !p.Say(wire.Next{}) {
		return s.fail(p, deaf(), "")
	}
	return nil
}

// work runs items in p until none is there, p has run its limit or is gone. On an error p is gone.
func (s *Slot) work(ctx context.Context, p *occupant, f *flow) error {
	timeout := f.call.timeout()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	late := time.NewTimer(time.Hour)
	defer late.Stop()
	p.Memory.Busy(true)
	defer p.Memory.Busy(false)
	for s.process == p {
		if f.hungry(p) && !wantsTrim(p) {
			if err := s.feed(p, f); err != nil {
				return err
			}
		}
		s.runs(f.current())
		if len(f.flight) == 0 {
			again, err := s.between(ctx, p, f)
			if again {
				continue
			}
			return err
		}
		if timeout > 0 {
			late.Reset(time.Until(f.began.Add(timeout)))
		} else {
			late.Stop()
		}
		var then func() error
		select {
		case <-f.intake.News():
			continue
		case h := <-p.Heard:
			then = func() error { return s.hear(p, f, h) }
		case <-s.doom:
			then = func() error { return s.failDoomed(p, f) }
		case <-late.C:
			then = func() error { return s.late(p, f, timeout) }
		case <-tick.C:
			then = func() error { return s.readBoard(p, f, p.Board.Published()) }
		case <-ctx.Done():
			s.drain(ctx, p, f, "call ended: "+context.Cause(ctx).Error())
			return context.Cause(ctx)
		}
		if err := s.endLapsed(f.call); err != nil {
			return err
		}
		if err := then(); err != nil {
			return err
		}
	}
	return nil
}

// late ends the process of an item that takes too long, or says that the item did end in time after all: what the process
// finished until it was gone counts.
func (s *Slot) late(p *occupant, f *flow, timeout time.Duration) error {
	// A result that has come in time counts, however late it is read.
	select {
	case h := <-p.Heard:
		return s.hear(p, f, h)
	default:
	}
	if err := s.readBoard(p, f, p.Board.Published()); err != nil {
		return err
	}
	if len(f.flight) == 0 || time.Since(f.began) < timeout {
		return nil
	}
	e := &diagnosis.Evidence{TimedOut: true, Message: fmt.Sprintf("no result after %s", timeout), Tail: p.Out.Tail()}
	stacks := p.Stacks()
	p.charge = s.faultFrom(p, *e)
	p.charge.Traceback = stacks
	p.Destroy()
	if err := s.endLapsed(f.call); err != nil {
		return err
	}
	late := f.flight[0]
	if err := s.readBoard(p, f, p.Board.Published()); err != nil {
		return err
	}
	if f.due(late.run, late.n) {
		return s.fail(p, e, stacks)
	}
	// It ended between the two looks, and the process in the middle of an innocent one.
	f.waiting = slices.Concat(f.flight, f.waiting)
	f.flight = nil
	s.kill("an item ended at the moment of its timeout")
	return nil
}

// drain ends the process in the middle of a call. What it had finished by then counts, however far its results have come, unless
// the call's time is over.
func (s *Slot) drain(ctx context.Context, p *occupant, f *flow, why string) {
	if errors.Is(context.Cause(ctx), calls.ErrLapsed) {
		s.kill(why)
		return
	}
	p.Signal(syscall.SIGTERM)
	over := make(chan struct{})
	defer time.AfterFunc(s.o.Grace, func() { close(over) }).Stop()
	for len(f.flight) > 0 {
		select {
		case h := <-p.Heard:
			switch h.Message.(type) {
			case wire.Results, wire.Posted, wire.ProgressReport:
				if s.hear(p, f, h) == nil {
					continue
				}
			case wire.Cap, wire.Kept:
				continue
			}
		case <-over:
		}
		break
	}
	if s.process == p && p.Board != nil {
		select {
		case <-p.Exited:
		case <-over:
		}
		p.Destroy()
		_ = s.readBoard(p, f, p.Board.Published()) // what is wrong with it ends no call that ends already
	}
	if s.process == p {
		s.retire(false, why)
	}
}

// hear takes in one message while items run.
func (s *Slot) hear(p *occupant, f *flow, h session.Heard) error {
	switch m := h.Message.(type) {
	case wire.Posted:
		p.Memory.Told(m.Allocators)
		if err := s.readBoard(p, f, m.Board); err != nil {
			return err
		}
		return s.goOn(p, f, m.Wait)
	case wire.Results:
		p.Memory.Told(m.Allocators)
		if err := s.readBoard(p, f, m.Board); err != nil {
			return err
		}
		return s.results(p, f, m)
	case wire.Fault:
		p.Memory.Told(m.Allocators)
		if err := s.readBoard(p, f, m.Board); err != nil {
			return err
		}
		if !f.due(m.Run, m.N) {
			return s.fail(p, diagnosis.Broken("a fault for item %d of run %d, which is not its turn", m.N, m.Run), "")
		}
		return s.raised(p, f, m)
	case wire.ProgressReport:
		if err := s.readBoard(p, f, m.Board); err != nil {
			return err
		}
		s.runs(f.current())
		s.progressed(m.Value)
		f.began = time.Now()
	case wire.Cap:
		if !p.Capped(m) {
			return s.fail(p, deaf(), "")
		}
	case wire.Kept:
		s.keep(m)
	default:
		if h.Err == nil {
			return s.fail(p, diagnosis.Broken("a message out of turn: %T", h.Message), "")
		}
		e := p.Death(h.Err)
		// What it finished until it was gone counts.
		if err := s.readBoard(p, f, p.Board.Published()); err != nil {
			return err
		}
		if len(f.flight) > 0 {
			return s.fail(p, e, "")
		}
		s.kill("ended between two items")
	}
	return nil
}

// fail ends the process because of evidence and returns the fault of the item that ran.
func (s *Slot) fail(p *occupant, e *diagnosis.Evidence, traceback string) error {
	fault := s.diagnose(p, e)
	fault.Traceback = traceback
	p.charge = fault
	// Whoever called says it to people, with the item.
	s.log.Debug("task process failed", zap.String(logkey.Task, p.Task.Name), zap.Int(logkey.PID, fault.PID),
		zap.String(logkey.Fault, fault.Error()))
	s.enter(Poisoned, string(fault.Kind))
	s.kill(string(fault.Kind))
	return fault
}

// deaf is the evidence of a process that was told more than it reads.
func deaf() *diagnosis.Evidence { return diagnosis.Broken(diagnosis.Deaf) }

package slot

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers/slot/diagnosis"
	"github.com/gpumux/gpumux/workers/slot/process"
	"github.com/gpumux/gpumux/workers/slot/wire"
)

// lookEvery is how often the board is looked at, and whether the call's time is over, while no message comes.
const lookEvery = 200 * time.Millisecond

// serve runs one call. It returns with the process ready for the next one, or with none.
func (s *Slot) serve(ctx context.Context, call Call) error {
	f := &flow{call: call, fresh: call.mode(s.o.Mode) == gpumux.Fresh, intake: newIntake(call.Items)}
	s.flow = f
	defer f.intake.end(ctx, s.quit)
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
		case p.limit > 0 && p.ran >= p.limit:
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
		case <-f.intake.news:
		case <-tick.C:
			if err := f.call.lapsed(); err != nil {
				return false, err
			}
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-s.quit:
			return false, ErrStopped
		}
	}
	switch err := f.intake.failure(); {
	case !f.ended():
		return true, nil
	case err != nil && ctx.Err() != nil:
		// The source has only seen it first.
		return false, context.Cause(ctx)
	default:
		return false, err
	}
}

// feed hands the process its next frame, as far as its items are there.
func (s *Slot) feed(p *session, f *flow) error {
	first := len(f.flight) == 0
	run := f.frame(p)
	if len(run.Items) == 0 {
		return nil
	}
	if first {
		f.began = f.flight[0].sent
	}
	p.runs++
	p.sent += len(run.Items)
	if !p.say(run) {
		return s.fail(p, p.deaf(), "")
	}
	return nil
}

// goOn lets a process go on that waits until its results were read.
func (s *Slot) goOn(p *session, f *flow, waits bool) error {
	if !waits {
		return nil
	}
	f.began = time.Now()
	if !p.say(wire.Next{}) {
		return s.fail(p, p.deaf(), "")
	}
	return nil
}

// work runs items in p until none is there, p has run its limit or is gone. On an error p is gone.
func (s *Slot) work(ctx context.Context, p *session, f *flow) error {
	timeout := f.call.timeout()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	late := time.NewTimer(time.Hour)
	defer late.Stop()
	p.memory.Busy(true)
	defer p.memory.Busy(false)
	for s.process == p {
		if f.hungry(p) && !s.wantsTrim(p) {
			if err := s.feed(p, f); err != nil {
				return err
			}
		}
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
		select {
		case <-f.intake.news:
		case h := <-p.heard:
			if err := s.lapsed(f.call); err != nil {
				return err
			}
			if err := s.hear(p, f, h); err != nil {
				return err
			}
		case <-late.C:
			if err := s.lapsed(f.call); err != nil {
				return err
			}
			// A result that has come in time counts, however late it is read.
			select {
			case h := <-p.heard:
				if err := s.hear(p, f, h); err != nil {
					return err
				}
				continue
			default:
			}
			if err := s.overdue(p, f, timeout); err != nil {
				return err
			}
		case <-tick.C:
			if err := s.lapsed(f.call); err != nil {
				return err
			}
			if err := s.look(p, f, p.board.Published()); err != nil {
				return err
			}
		case <-ctx.Done():
			s.leave(ctx, p, f, "call ended: "+context.Cause(ctx).Error())
			return context.Cause(ctx)
		case <-s.quit:
			s.leave(ctx, p, f, "slot stops")
			return ErrStopped
		}
	}
	return nil
}

// leave ends the process in the middle of a call. What it had finished by then counts, however far its results have come, unless
// the call's time is over.
func (s *Slot) leave(ctx context.Context, p *session, f *flow, why string) {
	if errors.Is(context.Cause(ctx), ErrLapsed) {
		s.drop(why)
		return
	}
	p.Signal(syscall.SIGTERM)
	over := make(chan struct{})
	defer time.AfterFunc(s.o.Grace, func() { close(over) }).Stop()
	for len(f.flight) > 0 {
		select {
		case h := <-p.heard:
			switch h.message.(type) {
			case wire.Results, wire.Posted, wire.ProgressReport:
				if s.hear(p, f, h) == nil {
					continue
				}
			case wire.Cap:
				continue
			}
		case <-over:
		}
		break
	}
	if s.process == p && p.board != nil {
		select {
		case <-p.Exited:
		case <-over:
		}
		p.Destroy()
		_ = s.look(p, f, p.board.Published()) // what is wrong with it ends no call that ends already
	}
	if s.process == p {
		s.retire(false, why)
	}
}

// hear takes in one message while items run.
func (s *Slot) hear(p *session, f *flow, h heard) error {
	switch m := h.message.(type) {
	case wire.Posted:
		if err := s.look(p, f, m.Board); err != nil {
			return err
		}
		return s.goOn(p, f, m.Wait)
	case wire.Results:
		if err := s.look(p, f, m.Board); err != nil {
			return err
		}
		return s.results(p, f, m)
	case wire.Fault:
		if err := s.look(p, f, m.Board); err != nil {
			return err
		}
		if !f.due(m.Run, m.N) {
			return s.fail(p, p.broke("a fault for item %d of run %d, which is not its turn", m.N, m.Run), "")
		}
		return s.raised(p, f, m)
	case wire.ProgressReport:
		if err := s.look(p, f, m.Board); err != nil {
			return err
		}
		f.began = time.Now()
	case wire.Cap:
		if !p.capped(s.o, m) {
			return s.fail(p, p.deaf(), "")
		}
	default:
		if h.err == nil {
			return s.fail(p, p.broke("a message out of turn: %T", h.message), "")
		}
		e := p.death(h.err)
		// What it finished until it was gone counts.
		if err := s.look(p, f, p.board.Published()); err != nil {
			return err
		}
		if len(f.flight) > 0 {
			return s.fail(p, e, "")
		}
		s.drop("ended between two items")
	}
	return nil
}

// results takes in the values of a frame.
func (s *Slot) results(p *session, f *flow, m wire.Results) error {
	if !f.due(m.Run, m.N) || len(m.Values) > len(f.flight) {
		return s.fail(p, p.broke("results for item %d of run %d, which is not its turn", m.N, m.Run), "")
	}
	// The process may go on while large values become JSON here.
	if err := s.goOn(p, f, m.Wait); err != nil {
		return err
	}
	for i, value := range m.Values {
		kind := wire.JSON
		if m.Kinds != nil {
			kind = m.Kinds[i]
		}
		var err error
		if m.Values[i], err = p.text(kind, value); err != nil {
			return s.fail(p, p.broke("the result of item %d of run %d: %v", m.N+i, m.Run, err), "")
		}
	}
	text, busy := p.Out.UpTo(m.Out), 0.0
	for _, each := range m.Busy {
		busy += each
	}
	now := time.Now()
	peak := p.peak(now, busy, m.Peak)
	for i, value := range m.Values {
		tries := 1
		if m.Attempts != nil {
			tries = m.Attempts[i]
		}
		f.finish(p, gpumux.Result{Value: value, Output: text}, m.Busy[i], tries, peak)
		text = ""
	}
	if !m.Wait {
		f.began = now
	}
	p.learnPace(busy / float64(len(m.Values)))
	s.ended(p, len(m.Values), busy, peak)
	return nil
}

// raised decides what an exception means: the item's own fault, one more try, or the end of the process.
func (s *Slot) raised(p *session, f *flow, m wire.Fault) error {
	e := raised(m.Raised)
	text := p.Out.UpTo(m.Out)
	e.Tail = text
	p.addMemory(e, s.kills)
	d := diagnosis.Diagnose(*e)
	if d.Poisoned || d.Fault.Kind.Deadly() {
		return s.fail(p, e, m.Raised.Traceback)
	}
	fault := d.Fault
	s.place(&fault, p.task)
	fault.Traceback, fault.PID = m.Raised.Traceback, p.PID
	f.blame(&fault)
	item := f.flight[0]
	fault.Attempts = item.tries + max(1, m.Attempts)
	if f.fresh && fault.Attempts < f.call.attempts() {
		item.tries++
		f.flight = f.flight[1:]
		f.held = append([]flying{item}, f.held...)
		p.ran++
		return nil
	}
	peak := p.peak(time.Now(), m.Busy, m.Peak)
	f.finish(p, gpumux.Result{Fault: &fault, Output: text}, m.Busy, fault.Attempts, peak)
	s.ended(p, 1, m.Busy, peak)
	return s.goOn(p, f, true)
}

// fail ends the process because of evidence and returns the fault of the item that ran.
func (s *Slot) fail(p *session, e *diagnosis.Evidence, traceback string) error {
	fault := s.diagnose(p, e)
	fault.Traceback = traceback
	p.charge = fault
	// Whoever called says it to people, with the item.
	s.log.Debug("task process failed", logTask.text(p.task.Name), logPID.int(fault.PID), logFault.text(fault.Error()))
	s.enter(Poisoned, string(fault.Kind))
	s.drop(string(fault.Kind))
	return fault
}

// deaf is the evidence of a process that was told more than it reads.
func (p *session) deaf() *diagnosis.Evidence { return p.broke("it asks for more than it reads") }

// broke is the evidence of a process that speaks, but not the protocol.
func (p *session) broke(format string, args ...any) *diagnosis.Evidence {
	return &diagnosis.Evidence{Protocol: fmt.Sprintf(format, args...), Tail: p.Out.Tail()}
}

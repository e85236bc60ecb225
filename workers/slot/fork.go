package slot

import (
	"context"
	"errors"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers/slot/diagnosis"
)

// begin starts a process for the call: forked from a template where it may be, else a new interpreter or program. The
// handshake is still to come.
func (s *Slot) begin(ctx context.Context, call Call, o Options, mayFork bool) (*session, error) {
	if err := s.reach(ctx, o, call.Task); err != nil {
		return nil, err
	}
	limit := call.Task.RecycleItems
	if call.mode(s.o.Mode) == gpumux.Fresh {
		limit = 1
		if mayFork && call.Task.forks() {
			p, err := s.templates.fork(ctx, s.quit, call, o, limit)
			var away *unreachableError
			if errors.As(err, &away) {
				return nil, s.unstarted(call.Task, err)
			}
			if !errors.Is(err, errNoFork) {
				return p, s.unforked(call, err)
			}
		}
	}
	p, err := launch(ctx, call.Task, o, limit)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, s.unstarted(call.Task, err)
	}
	return p, nil
}

// unforked makes the fault of a task that its template could not import, the same as if a new interpreter had been started.
func (s *Slot) unforked(call Call, err error) error {
	var failed *unimported
	if !errors.As(err, &failed) {
		return err
	}
	if err := call.lapsed(); err != nil {
		return err
	}
	fault := s.faultFrom(failed.process, failed.evidence)
	fault.Op, fault.Traceback = "start", failed.trace
	s.failures++
	return fault
}

// unready takes down that a forked process did not get ready, and ends it.
func (s *Slot) unready(p *session, e *diagnosis.Evidence) {
	why := e.Message
	if why == "" && p.Status != nil {
		why = p.Status.String()
	}
	s.templates.distrust(p.template, "a forked process did not get ready: "+why, e.TimedOut)
	s.retire(false, "did not get ready")
}

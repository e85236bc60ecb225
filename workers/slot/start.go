package slot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/logkey"
	"github.com/gpumux/gpumux/workers/slot/diagnosis"
	"github.com/gpumux/gpumux/workers/slot/launch"
	"github.com/gpumux/gpumux/workers/slot/session"
	"github.com/gpumux/gpumux/workers/slot/template"
)

// suitable returns the present process where it suits the call and its code has the edition, else a new one.
func (s *Slot) suitable(ctx context.Context, call order, edition string) (*occupant, error) {
	if p := s.process; p != nil {
		why := s.unfit(p, call, edition)
		if why == "" {
			return p, nil
		}
		if p.why != "" {
			s.recycled(p, p.why, why)
		}
		s.retire(true, why)
	}
	if err := s.backoff(ctx); err != nil {
		return nil, err
	}
	return s.start(ctx, call, true)
}

// unfit says why the process cannot run the call, or "".
func (s *Slot) unfit(p *occupant, call order, edition string) string {
	fresh := s.fresh(call)
	switch {
	case exited(p):
		return "ended while idle"
	case p.lease != call.Lease:
		return "of another lease"
	case !call.Task.Same(p.Task):
		return "another task"
	case p.edition != edition:
		return "its code has changed"
	case p.Memory.Budget != s.budget(call):
		return "another budget"
	case p.ran > 0 && (fresh || call.Clean):
		return "a clean process is wanted"
	case p.why != "":
		return p.text
	case p.limit > 0 && p.sent >= p.limit:
		return fmt.Sprintf("recycled after %d items", p.ran)
	case p.limit == 1 && !fresh:
		return "made for one item"
	case call.Task.RecycleAge > 0 && time.Since(p.started) > call.Task.RecycleAge:
		p.recycle(recycledAge, "recycled at age "+time.Since(p.started).Round(time.Second).String())
		return p.text
	}
	if fresh {
		p.limit = 1
	}
	return ""
}

func (s *Slot) fresh(call order) bool { return call.mode(s.o.Mode) == gpumux.Fresh }

func (s *Slot) budget(call order) gpumux.Size { return cmp.Or(call.Memory, s.o.Memory) }

// granted is what a process gets that starts with the call.
func (s *Slot) granted(call order) session.Options {
	o := session.Options{
		Slot: s.o.Name, Device: s.o.Device, Memory: s.budget(call), Room: cmp.Or(call.Room, s.o.Room), Mode: call.mode(s.o.Mode),
		Env: s.o.Env, Home: s.o.Home, Runtime: s.o.Runtime, RRuntime: s.o.RRuntime, Watch: s.o.Watch, Cgroups: s.o.Cgroups, Capped: s.o.Capped,
		Ending: s.o.Ending, StartLimit: s.o.StartLimit, Patience: s.o.patience, Log: s.o.Log,
	}
	if call.Env != nil {
		o.Env = call.Env
	}
	return o
}

// backoff waits before a start when the last ones failed.
func (s *Slot) backoff(ctx context.Context) error {
	if s.failures == 0 {
		return nil
	}
	s.enter(Backoff, fmt.Sprintf("%d starts failed", s.failures))
	defer s.enter(Vacant, "backoff over")
	timer := time.NewTimer(min(10*time.Second, 100*time.Millisecond<<min(s.failures-1, 10)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// start makes a new process ready for the call.
func (s *Slot) start(ctx context.Context, call order, mayFork bool) (*occupant, error) {
	if s.lingering {
		return nil, errCut
	}
	s.enter(Starting, "call of "+call.Task.Name)
	p, child, err := s.spawn(ctx, call, mayFork)
	if err != nil {
		s.unstart()
		return nil, err
	}
	s.occupy(p)
	ready, evidence, trace := p.Greet(ctx)
	switch {
	case evidence == nil:
		p.batch, p.trims = ready.Batch, ready.Trim
		if child != nil {
			p.edition, p.modules = child.Edition, child.Modules
			child.Ready()
		} else if p.edition, err = s.current(ctx, call.Task, ready.Modules); err != nil {
			s.abandon(ctx, "its file system does not answer")
			return nil, err
		} else {
			p.modules = ready.Modules
		}
		s.loaded(p, call)
		return p, nil
	case child != nil && !evidence.Canceled:
		if err := s.endLapsed(call); err != nil {
			return nil, err
		}
		child.Unready(evidence)
		s.retire(false, "did not get ready")
		return s.start(ctx, call, false)
	default:
		return nil, s.unready(ctx, p, call, evidence, trace)
	}
}

// unstart takes back that a process starts.
func (s *Slot) unstart() {
	s.enter(Reclaiming, "did not start")
	s.enter(Vacant, "did not start")
}

// spawn starts a process for the call: forked from a template where it may be, a child then, else a new interpreter or program. The
// handshake is still to come.
func (s *Slot) spawn(ctx context.Context, call order, mayFork bool) (*occupant, *template.Child, error) {
	o, limit := s.granted(call), call.Task.RecycleItems
	if s.fresh(call) {
		limit = 1
	}
	if call.Lease != "" {
		limit, o.Lease, o.Host, o.Rebuilt = 0, call.Lease, s.o.Host, call.Rebuilt
	}
	o.Single = limit == 1 || call.Lease != ""
	if err := call.Task.Reach(ctx, o.StartLimit); err != nil {
		return nil, nil, s.unanswered(call.Task, err)
	}
	if mayFork && s.fresh(call) {
		switch child, err := s.templates.Fork(ctx, call.Task, o); {
		case err == nil:
			return newOccupant(child.Session, limit), child, nil
		case !errors.Is(err, template.ErrNone):
			return nil, nil, s.unforked(call, err)
		}
	}
	p, err := session.Start(ctx, call.Task, o, nil)
	switch {
	case err == nil:
		o := newOccupant(p, limit)
		o.lease, o.target = call.Lease, call.Task.Target()
		return o, nil, nil
	case ctx.Err() != nil:
		return nil, nil, context.Cause(ctx)
	default:
		return nil, nil, s.unstarted(call.Task, err)
	}
}

// occupy makes p the slot's process.
func (s *Slot) occupy(p *occupant) {
	s.process = p
	if cmp.Or(p.Task.Hygiene, s.o.Hygiene) == launch.HygieneOff {
		p.tidy.Budget = 0
	}
	p.Patience, p.Lingers = s.o.patience, s.lingers
	s.mu.Lock()
	s.stats.Processes++
	s.task, s.pid, s.watched, s.out = p.Task.Name, p.PID, p.Memory.Watched, p.Out
	s.mu.Unlock()
}

// loaded takes down that the process has imported the task of the call.
func (s *Slot) loaded(p *occupant, call order) {
	s.failures = 0
	s.enter(Ready, "task loaded")
	level := zap.InfoLevel
	if s.fresh(call) {
		level = zap.DebugLevel // one for each item
	} else if s.o.Loaded != nil && p.Memory.Budget > 0 {
		s.o.Loaded(call.Task.Name, p.Memory.Measure())
	}
	s.log.Log(level, "task process ready", zap.String(logkey.Task, call.Task.Name), zap.Int(logkey.PID, p.PID))
}

// unready ends a process that did not get ready and returns its fault, or why the call ends.
func (s *Slot) unready(ctx context.Context, p *occupant, call order, evidence *diagnosis.Evidence, trace string) error {
	if err := s.endLapsed(call); err != nil {
		return err
	}
	evidence.Loading = true
	fault := s.diagnose(p, evidence)
	fault.Op, fault.Traceback = "start", trace
	if evidence.Canceled {
		s.abandon(ctx, "cancelled")
		return context.Cause(ctx)
	}
	s.failures++
	s.retire(false, "did not get ready")
	return fault
}

// unforked makes the fault of a task that its template could not import, the same as if a new interpreter had been started.
func (s *Slot) unforked(call order, err error) error {
	var failed *template.UnimportedError
	if !errors.As(err, &failed) {
		return s.unanswered(call.Task, err)
	}
	if err := call.lapsed(); err != nil {
		return err
	}
	fault := s.faultFrom(newOccupant(failed.Session, 1), failed.Evidence)
	fault.Op, fault.Traceback = "start", failed.Trace
	s.failures++
	return fault
}

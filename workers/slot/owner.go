package slot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers/slot/diagnosis"
	"github.com/gpumux/gpumux/workers/slot/process"
)

// own is the owner goroutine: nothing else touches the process.
func (s *Slot) own() {
	defer close(s.gone)
	idle := time.NewTimer(time.Hour)
	for {
		s.lingered()
		var exited chan struct{}
		if s.process != nil {
			exited = s.process.Exited
		}
		select {
		case r := <-s.calls:
			s.asked = &r
			if r.clear {
				s.retire(true, "its memory is wanted")
				s.answer(nil)
				continue
			}
			s.answer(s.serve(r.ctx, r.call))
			idle.Reset(idleAfter)
		case <-idle.C:
			s.rest()
		case <-exited:
			why := s.process.Status.String()
			if over := s.process.memory.over.Load(); over > 0 {
				why = fmt.Sprintf("it held %s, over the budget of %s", gpumux.Size(over), s.process.budget)
				if left := s.process.memory.left.Load(); left > 0 {
					why = fmt.Sprintf("the host had %s left, and it held %s, the most of all", gpumux.Size(left), gpumux.Size(over))
				}
			}
			s.log.Warn("task process ended while it was idle", logPID.int(s.process.PID), logWhy.text(why))
			s.retire(false, "ended while idle")
		case <-s.quit:
			s.retire(true, "slot stops")
			s.templates.share(-1)
			if s.owned {
				s.templates.Close()
			}
			s.enter(Stopped, "slot stops")
			s.lingered()
			return
		}
	}
}

// answer ends a request. One whose process lingered was answered then.
func (s *Slot) answer(err error) {
	if s.asked != nil {
		s.asked.reply <- err
	}
	s.asked, s.flow = nil, nil
}

// cut answers the request that is served before its end: nothing is taken from its call any more, nor handed to it.
func (s *Slot) cut(err error) {
	if s.asked == nil {
		return
	}
	if ctx := s.asked.ctx; ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if s.flow != nil {
		s.flow.cut()
	}
	s.asked.reply <- err
	s.asked = nil
}

// errCut ends what is left of a call that was answered early. Nobody sees it.
var errCut = errors.New("the call was answered before its end")

// suitable returns the present process where it suits the call and its code has the edition, else a new one.
func (s *Slot) suitable(ctx context.Context, call Call, edition string) (*session, error) {
	if p := s.process; p != nil {
		if why := s.unfit(p, call, edition); why != "" {
			if p.memory.why != "" {
				s.recycled(p, p.memory.why, why)
			}
			s.retire(true, why)
		} else {
			return p, nil
		}
	}
	if err := s.backoff(ctx); err != nil {
		return nil, err
	}
	return s.start(ctx, call, true)
}

// start makes a new process ready for the call.
func (s *Slot) start(ctx context.Context, call Call, mayFork bool) (*session, error) {
	if s.lingering {
		return nil, errCut
	}
	s.enter(Starting, "call of "+call.Task.Name)
	o := s.granted(call)
	p, err := s.begin(ctx, call, o, mayFork)
	if err != nil {
		s.enter(Reclaiming, "did not start")
		s.enter(Vacant, "did not start")
		return nil, err
	}
	s.hold(p)
	if p.template != nil {
		o.StartLimit = min(o.StartLimit, forkLimit)
	}
	evidence, trace := p.greet(ctx, o, call, s.quit)
	if p.template != nil && evidence != nil && !evidence.Canceled {
		if err := s.lapsed(call); err != nil {
			return nil, err
		}
		s.unready(p, evidence)
		return s.start(ctx, call, false)
	}
	if evidence == nil {
		if p.template != nil {
			p.edition, p.modules = p.template.edition, p.template.process.modules
		} else if p.edition, err = s.current(ctx, call.Task, p.modules); err != nil {
			s.abandon(ctx, "its file system does not answer")
			return nil, err
		}
		s.failures = 0
		if p.template != nil {
			s.templates.trust(p.template)
		}
		s.enter(Ready, "task loaded")
		fresh := call.mode(s.o.Mode) == gpumux.Fresh
		if o.Loaded != nil && o.Memory > 0 && !fresh {
			o.Loaded(call.Task.Name, p.memory.Measure())
		}
		level := zap.InfoLevel
		if fresh {
			level = zap.DebugLevel // one for each item
		}
		s.log.Log(level, "task process ready", logTask.text(call.Task.Name), logPID.int(p.PID))
		return p, nil
	}
	if err := s.lapsed(call); err != nil {
		return nil, err
	}
	evidence.Loading = true
	fault := s.diagnose(p, evidence)
	fault.Op, fault.Traceback = "start", trace
	if evidence.Canceled {
		s.abandon(ctx, "cancelled")
		return nil, s.ending(ctx)
	}
	s.failures++
	s.retire(false, "did not get ready")
	return nil, fault
}

// unfit says why the process cannot run the call, or "".
func (s *Slot) unfit(p *session, call Call, edition string) string {
	select {
	case <-p.Exited:
		return "ended while idle"
	default:
	}
	fresh := call.mode(s.o.Mode) == gpumux.Fresh
	switch {
	case !same(p.task, call.Task):
		return "another task"
	case p.edition != edition:
		return "its code has changed"
	case p.budget != s.granted(call).Memory:
		return "another budget"
	case p.ran > 0 && (fresh || call.Clean):
		return "a clean process is wanted"
	case p.memory.why != "":
		return p.memory.text
	case p.limit > 0 && p.sent >= p.limit:
		return fmt.Sprintf("recycled after %d items", p.ran)
	case p.limit == 1 && !fresh:
		return "made for one item"
	case call.Task.RecycleAge > 0 && time.Since(p.started) > call.Task.RecycleAge:
		p.recycle(recycledAge, "recycled at age "+time.Since(p.started).Round(time.Second).String())
		return p.memory.text
	}
	if fresh {
		p.limit = 1
	}
	return ""
}

// granted is the slot's options with what the call overrides.
func (s *Slot) granted(call Call) Options {
	o := s.o
	if call.Memory > 0 {
		o.Memory = call.Memory
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
	case <-s.quit:
	}
	return s.ending(ctx)
}

// ending is why a call ends early: its own context, or the slot that stops.
func (s *Slot) ending(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return ErrStopped
}

// hold makes p the slot's process.
func (s *Slot) hold(p *session) {
	s.process = p
	p.Patience, p.Lingers = s.o.patience, s.lingers
	s.mu.Lock()
	s.stats.Processes++
	s.task = p.task.Name
	s.mu.Unlock()
}

// retire ends the slot's process and returns when nothing of it is left.
func (s *Slot) retire(kindly bool, why string) {
	p := s.process
	if p == nil {
		return
	}
	s.enter(Reclaiming, why)
	p.end(kindly, s.o.Grace)
	s.process = nil
	s.mu.Lock()
	s.task = ""
	s.mu.Unlock()
	s.enter(Vacant, why)
}

// drop is retire for a process that must not go on: no grace.
func (s *Slot) drop(why string) {
	s.process.Signal(syscall.SIGKILL)
	s.retire(false, why)
}

// lapsed ends the process when the call's time is over: nothing that it finished may count then.
func (s *Slot) lapsed(call Call) error {
	err := call.lapsed()
	if err != nil {
		s.drop("the call's time was over")
	}
	return err
}

// abandon is retire when a call's context has ended: at once where the call's time is over.
func (s *Slot) abandon(ctx context.Context, why string) {
	if errors.Is(context.Cause(ctx), ErrLapsed) {
		s.drop(why)
		return
	}
	s.retire(false, why)
}

// diagnose makes a fault of this slot from evidence.
func (s *Slot) diagnose(p *session, e *diagnosis.Evidence) *gpumux.Fault {
	p.gather(e, s.kills)
	select {
	case <-p.Exited:
		if s.o.Device == "CPU" {
			e.Peak = max(e.Peak, process.MostResident(p.Status))
		}
	default:
	}
	return s.faultFrom(p, *e)
}

// gather adds what the process leaves behind to the evidence; kills is memoryKills of a time before.
func (p *session) gather(e *diagnosis.Evidence, kills int) {
	e.Budget, e.Peak, e.Target = int64(p.budget), p.memory.Peak(), p.task.Python
	p.addMemory(e, kills)
	if e.Tail == "" {
		e.Tail = p.Out.Tail()
	}
}

// faultFrom makes a fault of this slot from all the evidence.
func (s *Slot) faultFrom(p *session, e diagnosis.Evidence) *gpumux.Fault {
	e.Lent, e.OnCPU = p.budget > s.o.Memory, s.o.Device == "CPU"
	d := diagnosis.Diagnose(e)
	fault := d.Fault
	fault.Blameless = d.Blameless
	s.place(&fault, p.task)
	fault.PID = p.PID
	if p.batch > 0 {
		fault.Batch = min(p.batch, p.sent-p.ran)
	}
	fault.Alone = p.ran == 0 && fault.Batch <= 1
	if s.flow != nil && fault.Batch <= 1 && !e.Loading {
		s.flow.blame(&fault)
	}
	if fault.Kind.Deadly() && fault.Tail == "" {
		fault.Tail = e.Tail
	}
	return &fault
}

// place says where a fault happened.
func (s *Slot) place(fault *gpumux.Fault, task Task) {
	fault.Op, fault.Task, fault.Slot, fault.Device, fault.Host = "run", task.Name, s.o.Name, s.o.Device, s.o.Host
}

// unstarted is the fault of a process that the system could not start.
func (s *Slot) unstarted(task Task, err error) *gpumux.Fault {
	fault := &gpumux.Fault{Kind: gpumux.Crash, Message: err.Error()}
	s.place(fault, task)
	fault.Op = "start"
	var program *process.ProgramError
	var away *unreachableError
	var silent *silentError
	switch {
	case errors.As(err, &away):
		fault.Blameless, fault.Hint = true, unreachableHint
	case errors.As(err, &silent):
		fault.Hint = silent.hint()
	case scarce(err):
		// It passes, and no item is to blame.
		fault.Blameless = true
		fault.Hint = "raise the limits on open files and processes of the worker, or use fewer slots"
		if errors.Is(err, syscall.ENOMEM) {
			fault.Kind = gpumux.HostOOM
		}
	case !errors.As(err, &program):
		fault.Hint = "the worker's machine did not allow it; change that, or run the worker on another"
	case errors.Is(err, exec.ErrNotFound):
		fault.Kind, fault.Hint = gpumux.BadInput, "install it, or name it with its full path in the task"
	case program.User != nil && errors.Is(err, os.ErrPermission):
		fault.Kind, fault.Hint = gpumux.BadInput, fmt.Sprintf("see that user %s may enter the task's folder and may execute the file",
			program.User.Name)
	default:
		fault.Kind, fault.Hint = gpumux.BadInput, "check that the file exists in the task's folder and may be executed"
	}
	return fault
}

// scarce reports whether the worker or its machine ran out of something that comes back when others let go of it.
func scarce(err error) bool {
	for _, lack := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN, syscall.ENOMEM} {
		if errors.Is(err, lack) {
			return true
		}
	}
	return false
}

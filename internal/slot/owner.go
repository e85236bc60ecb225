package slot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/process"
	"github.com/gpumux/gpumux/internal/template"
)

// owner is the goroutine that owns a slot. Only it starts and replaces the process; the
// memory watch may kill it.
type owner struct {
	slot    *Slot
	o       Options
	judge   judge
	scratch scratch
	// Fresh processes are forked from templates. ownSet: the set ends with the slot.
	templates *template.Set
	ownSet    bool
	process   *occupant
	failures  int
	// overfull is the task whose last start was over the budget.
	overfull string
	// job is under way; nil: none is. clearing is the request to end the process that is.
	job      *job
	clearing *request
}

func newOwner(s *Slot, templates *template.Set, o Options) *owner {
	made := &owner{slot: s, o: o, judge: judge{o: o}, scratch: scratch{log: s.log}, templates: templates}
	if templates == nil {
		made.templates, made.ownSet = template.NewSet(o.Log), true
	}
	return made
}

func (o *owner) serveAll() {
	defer close(o.slot.gone)
	for {
		o.returned()
		var exited chan struct{}
		if o.process != nil {
			exited = o.process.session.Process.Exited
		}
		select {
		case r := <-o.slot.requests:
			o.serve(r)
		case <-exited:
			o.slot.log.Warn("task process ended while it was idle", zap.Int("pid", o.process.session.Process.PID),
				zap.String("why", o.process.ending()))
			o.retire(false, "ended while idle")
		case <-o.slot.life.Done():
			o.retire(true, "slot stops")
			os.RemoveAll(o.scratch.dir)
			if o.ownSet {
				o.templates.Close()
			}
			o.slot.enter(Stopped, "slot stops")
			o.returned()
			return
		}
	}
}

// serve serves a request, and those that had to wait for its job.
func (o *owner) serve(r request) {
	for next := &r; next != nil; {
		if next.clear {
			o.clearing = next
			o.retire(true, "its memory is wanted")
			o.cleared(nil)
			return
		}
		o.job = newJob(o, *next)
		o.job.serve()
		if next = o.job.pending; next != nil {
			o.job.unwatch()
		}
		o.job = nil
	}
}

// cleared answers the request to end the process, unless lingers has.
func (o *owner) cleared(err error) {
	if o.clearing != nil {
		o.clearing.reply <- err
	}
	o.clearing = nil
}

// retire ends the slot's process, kindly or with a signal, and returns when nothing of it
// is left.
func (o *owner) retire(kindly bool, why string) {
	p := o.process
	if p == nil {
		return
	}
	o.slot.enter(Reclaiming, why)
	late, raised := p.session.End(kindly, o.o.Grace)
	if late && kindly {
		o.o.Notices.Warn(o.o.Log, fmt.Sprintf("after their last item, processes of a task do not end by themselves; each is killed after %s", o.o.Grace),
			zap.String("task", p.session.Task.Name), zap.String("advice", "let the task join its threads, or make them"+
				" daemons (threading.Thread(daemon=True)), and let its exit handlers, __exit__ or close return"))
	}
	if raised != "" {
		o.o.Notices.Warn(o.o.Log, "the end of a task's process raised "+raised, zap.String("task", p.session.Task.Name),
			zap.String("advice", "no result is concerned; mend its __exit__ or close"))
	}
	began := time.Now()
	if left := p.session.Memory.AwaitReturn(o.slot.life); left > 0 && o.slot.life.Err() == nil {
		o.slot.log.Warn(fmt.Sprintf("%s of device memory are not back, %s after the end of the task process %d, and the slot goes on without them",
			gpumux.Size(left), time.Since(began).Round(time.Millisecond), p.session.Process.PID),
			zap.String("advice", "see in nvidia-smi who holds it; a driver that hangs says so in the kernel's log (dmesg)"))
	}
	o.scratch.removeFolder(p)
	o.process = nil
	o.slot.vacated()
	o.slot.enter(Vacant, why)
}

// kill is retire without grace, for a process that must not go on.
func (o *owner) kill(why string) {
	o.process.session.Process.Signal(syscall.SIGKILL)
	o.retire(false, why)
}

// abandon is retire for the process of a call that has ended. Where the items may run
// elsewhere, there is no grace.
func (o *owner) abandon(err error, why string) {
	if errors.Is(err, calls.ErrLapsed) {
		o.kill(why)
		return
	}
	o.retire(false, why)
}

func (o *owner) fail(fault *gpumux.Fault) {
	// The caller logs it for people, with the item.
	o.slot.log.Debug("task process failed", zap.String("task", o.process.session.Task.Name), zap.Int("pid", fault.PID),
		zap.String("fault", fault.Error()))
	o.slot.enter(Poisoned, string(fault.Kind))
	o.kill(string(fault.Kind))
}

func (o *owner) occupy(p *occupant) {
	o.process = p
	p.session.Process.Patience, p.session.Process.Lingers = o.o.Patience, o.lingers
	o.slot.occupied(p)
}

func (o *owner) unstart() {
	o.slot.enter(Reclaiming, "did not start")
	o.slot.enter(Vacant, "did not start")
}

func (o *owner) expire(fresh bool) {
	p := o.process
	why, text := p.account.replaced()
	if !fresh {
		o.recycled(p, why, text)
	}
	o.retire(true, text)
}

// recycled counts and logs a process that is replaced although it could go on.
func (o *owner) recycled(p *occupant, why, text string) {
	o.slot.tally(func(st *Stats) { st.Recycled[why]++ })
	o.slot.log.Info("task process recycled", zap.String("task", p.session.Task.Name), zap.Int("pid", p.session.Process.PID),
		zap.String("reason", why), zap.String("why", text))
}

// lingers is called while a killed process does not end. It answers the call under way
// and the calls that wait: none of the process's code runs any more, so their items can
// run elsewhere. The slot goes on waiting, because the process still holds memory. Calls
// for whose items the process was killed get that fault; else no item is to blame.
func (o *owner) lingers() {
	p := o.process
	idle := &gpumux.Fault{Kind: gpumux.FaultCrash, Blameless: true, Hint: process.LingerHint, Message: fmt.Sprintf(
		"the task process %d was killed and has not ended for %s: it hangs in the kernel, or something outside of it holds it",
		p.session.Process.PID, o.o.Patience)}
	o.judge.locate(idle, p.session.Task)
	idle.PID = p.session.Process.PID
	if o.slot.linger(true) {
		o.slot.log.Error("a killed task process does not end; its slot is out of service until it does", zap.String("task", p.session.Task.Name),
			zap.Int("pid", p.session.Process.PID), zap.String("advice", process.LingerHint))
	}
	if o.job != nil {
		o.job.calls.cut(*idle)
		if r := o.job.pending; r != nil {
			o.job.unwatch()
			o.job.pending = nil
			r.reply <- idle
		}
	}
	if r := o.clearing; r != nil {
		o.cleared(cmp.Or(context.Cause(r.ctx), error(idle)))
	}
	for {
		select {
		case r := <-o.slot.requests:
			r.reply <- idle
		default:
			return
		}
	}
}

func (o *owner) returned() {
	if o.slot.linger(false) {
		o.slot.log.Info("the task process that did not end is gone, and its slot is back in service")
	}
}

package slot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/session"
	"github.com/gpumux/gpumux/internal/template"
)

// unsteady is how often the code of a task may change while a process imports it before
// the call is given up.
const unsteady = 3

// admission decides which process a call gets: the present one or a new one.
type admission struct{ job *job }

// ready returns a process that may run an item of the call: the present one where it
// suits, else a new one. Its code has the edition that the call is for, and the files
// still have it, so that what the process imports later is of it, too.
func (a admission) ready(ctx context.Context) (*occupant, error) {
	if p, err := a.leased(); p != nil || err != nil {
		return p, err
	}
	for tries := 1; ; tries++ {
		now, err := a.needed(ctx)
		if err == nil && tries > unsteady {
			err = a.job.owner.judge.outdated(a.job.call, now)
		}
		if err != nil {
			return nil, err
		}
		p, err := a.suitable(ctx, now)
		if err != nil {
			return nil, err
		}
		if p.edition == now {
			a.use(now)
			return p, nil
		}
		a.job.owner.retire(true, "its code changed while it was imported")
	}
}

// needed is the edition of the task's code, which has to be the call's.
func (a admission) needed(ctx context.Context) (string, error) {
	now, err := a.edition(ctx)
	if want := a.job.call.Edition; err == nil && want != "" && want != now {
		err = a.job.owner.judge.outdated(a.job.call, now)
	}
	return now, err
}

// leased returns the process of the call's lease, if there is one. It runs the code that
// it has loaded.
func (a admission) leased() (*occupant, error) {
	p, task := a.job.owner.process, a.job.call.Task
	switch {
	case a.job.call.Lease == "":
		return nil, nil
	case p == nil || p.lease != a.job.call.Lease || p.exited():
		if a.job.call.Process != 0 {
			return nil, calls.ErrGone
		}
		return nil, nil
	case !task.Joins(p.session.Task):
		return nil, a.job.owner.judge.start(task, gpumux.Fault{
			Kind:    gpumux.BadInput,
			Message: fmt.Sprintf("the process of the lease runs task %s, and task %s needs another process", p.session.Task.Name, task.Name),
			Hint:    "in one lease call tasks of the same folder, interpreter, environment and user, or use a lease for each",
		})
	}
	p.session.Task = task
	return p, nil
}

// edition is that of the task's code as its files are now. An error is the fault of a
// start, or why the call ended.
func (a admission) edition(ctx context.Context) (string, error) {
	now, err := a.job.call.Task.Edition(ctx, a.startLimit())
	return now, a.job.owner.judge.unanswered(a.job.call.Task, err)
}

// startLimit is the task's own, else the slot's.
func (a admission) startLimit() time.Duration {
	return cmp.Or(a.job.call.Task.StartLimit, a.job.owner.o.StartLimit)
}

// use fixes the edition of the call: later processes need the same.
func (a admission) use(edition string) {
	if a.job.call.Ran != nil {
		a.job.call.Ran(edition)
	}
	a.job.call.Edition = edition
}

// suitable returns the present process where it suits the call and its code has the
// edition, else a new one.
func (a admission) suitable(ctx context.Context, edition string) (*occupant, error) {
	if p := a.job.owner.process; p != nil {
		why := a.unfit(p, edition)
		if why == "" {
			return p, nil
		}
		if reason, _ := p.account.Replaced(); reason != "" {
			a.job.owner.recycled(p, reason, why)
		}
		a.job.owner.retire(true, why)
	}
	if err := a.backoff(ctx); err != nil {
		return nil, err
	}
	return a.start(ctx, edition)
}

// unfit returns why the process cannot run the call, or "".
func (a admission) unfit(p *occupant, edition string) string {
	task := a.job.call.Task
	switch {
	case p.exited():
		return "ended while idle"
	case p.lease != a.job.call.Lease:
		return "of another lease"
	case !task.Same(p.session.Task):
		return "another task"
	case p.edition != edition:
		return "its code has changed"
	case p.session.Memory.Budget != cmp.Or(a.job.call.Memory, a.job.owner.o.Memory):
		return "another budget"
	}
	return p.account.Unfit(a.job.fresh, a.job.call.Clean, task.RecycleAge)
}

// backoff waits before a start when the last ones failed.
func (a admission) backoff(ctx context.Context) error {
	failures := a.job.owner.failures
	if failures == 0 {
		return nil
	}
	a.job.slot.enter(Backoff, fmt.Sprintf("%d starts failed", failures))
	defer a.job.slot.enter(Vacant, "backoff over")
	timer := time.NewTimer(min(10*time.Second, 100*time.Millisecond<<min(failures-1, 10)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// options are what a process of the call gets, and how many items it may run.
func (a admission) options() (o Options, limit int) {
	o, limit = a.job.owner.o, a.job.call.Task.RecycleItems
	o.Memory, o.Room, o.Mode = cmp.Or(a.job.call.Memory, o.Memory), cmp.Or(a.job.call.Room, o.Room), a.job.call.mode(o.Mode)
	if a.job.call.Env != nil {
		o.Env = a.job.call.Env
	}
	o.StartLimit = a.startLimit()
	o.Lease, o.Rebuilt = a.job.call.Lease, a.job.call.Rebuilt
	switch {
	case o.Lease != "":
		limit = 0
	case a.job.fresh:
		limit = 1
	}
	o.Single = limit == 1 || o.Lease != ""
	return o, limit
}

// start makes a new process ready for the call: forked from a template of the edition to
// fork, where that is given and possible.
func (a admission) start(ctx context.Context, fork string) (*occupant, error) {
	owner, task := a.job.owner, a.job.call.Task
	a.job.slot.enter(Starting, "call of "+task.Name)
	a.job.slot.starts(task.Name)
	p, child, err := a.spawn(ctx, fork)
	if err != nil {
		a.unstart()
		return nil, err
	}
	owner.occupy(p)
	ready, evidence, trace := p.session.Greet(ctx)
	if evidence == nil {
		p.account.Ready(ready.Batch, ready.Trim)
		if child != nil {
			p.edition = child.Edition
		} else if p.edition, err = a.edition(ctx); err != nil {
			owner.abandon(err, "its file system does not answer")
			return nil, err
		}
		a.loaded(p)
		return p, nil
	}
	if err := a.job.lapsed(); err != nil {
		owner.kill("the call's time was over")
		return nil, err
	}
	if evidence.Canceled {
		owner.abandon(context.Cause(ctx), "cancelled")
		return nil, context.Cause(ctx)
	}
	if child != nil {
		child.Unready(evidence)
		owner.retire(false, "did not get ready")
		return a.start(ctx, "")
	}
	evidence.Loading = true
	fault := owner.judge.diagnose(p, &deathError{evidence, trace}, nil)
	fault.Op = "start"
	owner.failures++
	owner.retire(false, "did not get ready")
	return nil, fault
}

// unstart resets the state after a failed start.
func (a admission) unstart() {
	a.job.slot.enter(Reclaiming, "did not start")
	a.job.slot.enter(Vacant, "did not start")
}

// spawn starts a process for the call: forked from a template where it may be, a child
// then, else a new interpreter or program. The handshake is still to come.
func (a admission) spawn(ctx context.Context, fork string) (*occupant, *template.Child, error) {
	task, judge := a.job.call.Task, a.job.owner.judge
	o, limit := a.options()
	if fork != "" && a.job.fresh {
		switch child, err := a.job.owner.templates.Fork(ctx, task, o, fork); {
		case err == nil:
			return newOccupant(child.Session, o, limit), child, nil
		case !errors.Is(err, template.ErrNone):
			return nil, nil, judge.unanswered(task, err)
		}
	}
	p, err := session.Start(ctx, task, o, nil)
	if ctx.Err() != nil && p == nil {
		return nil, nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, nil, judge.unstarted(task, err)
	}
	return newOccupant(p, o, limit), nil, nil
}

// loaded notes that the process has imported the task.
func (a admission) loaded(p *occupant) {
	a.job.owner.failures = 0
	a.job.slot.enter(Ready, "task loaded")
	level := zap.InfoLevel
	if a.job.fresh {
		level = zap.DebugLevel // one for each item
	}
	a.job.slot.log.Log(level, "task process ready", zap.String("task", a.job.call.Task.Name), zap.Int("pid", p.session.Process.PID))
}

package slot

import (
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

// unsteady is how often the code of a task may change during its import. Then the calls
// are given up.
const unsteady = 3

// admit returns a process that may run an item of the call: the present one where it
// suits, else a new one. The process was loaded from the call's edition of the code, and
// the files still have that edition, because the process may import more of them later.
func (j *job) admit(ctx context.Context) (*occupant, error) {
	for tries := 1; ; tries++ {
		now, err := j.callEdition(ctx)
		if err == nil && tries > unsteady {
			err = j.judge.outdated(j.task, j.want.Edition, now)
		}
		if err != nil {
			return nil, err
		}
		p := j.owner.process
		if p != nil {
			if why := j.unfit(p, now); why != "" {
				if reason, _ := p.account.replaced(); reason != "" {
					j.owner.recycled(p, reason, why)
				}
				j.owner.retire(true, why)
				p = nil
			}
		}
		if p == nil {
			if err := j.backoff(ctx); err != nil {
				return nil, err
			}
			if p, err = j.start(ctx, now); err != nil {
				return nil, err
			}
		}
		if p.edition == now {
			j.settle(p)
			return p, nil
		}
		j.owner.retire(true, "its code changed while it was imported")
	}
}

// callEdition is the edition of the task's files now. It is an error where the call needs
// another one.
func (j *job) callEdition(ctx context.Context) (string, error) {
	now, err := j.edition(ctx)
	if err == nil && j.want.Edition != "" && j.want.Edition != now {
		err = j.judge.outdated(j.task, j.want.Edition, now)
	}
	return now, err
}

// edition is the edition of the task's files now. An error is the fault of a start, or
// why the call ended.
func (j *job) edition(ctx context.Context) (string, error) {
	now, err := j.task.Edition(ctx, j.o.StartLimit)
	return now, j.judge.unanswered(j.task, err)
}

func (j *job) unfit(p *occupant, edition string) string {
	switch {
	case p.exited():
		return "ended while idle"
	case !j.task.Same(p.session.Task):
		return "another task"
	case p.edition != edition:
		return "its code has changed"
	case p.session.Memory.Budget != j.o.Memory:
		return "another budget"
	}
	return p.account.unfit(j.fresh, j.want.Clean)
}

func (j *job) backoff(ctx context.Context) error {
	failures := j.owner.failures
	if failures == 0 {
		return nil
	}
	j.slot.enter(Backoff, fmt.Sprintf("%d starts failed", failures))
	defer j.slot.enter(Vacant, "backoff over")
	select {
	case <-time.After(min(10*time.Second, 100*time.Millisecond<<min(failures-1, 10))):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// start makes a new process ready for the call. A fresh one is forked from a template of
// the edition fork, unless that is "" or there is none.
func (j *job) start(ctx context.Context, fork string) (*occupant, error) {
	j.slot.starts(j.task.Name, "call of "+j.task.Name)
	p, child, err := j.spawn(ctx, fork)
	if err != nil {
		j.owner.unstart()
		return nil, err
	}
	j.owner.occupy(p)
	ready, evidence, trace := p.session.Greet(ctx)
	if evidence != nil {
		return j.unready(ctx, child, &deathError{evidence, trace})
	}
	p.account.batch, p.account.concurrent, p.kinds = ready.Batch, ready.Concurrent, ready.Kinds
	if child != nil {
		p.edition = child.Edition
	} else if p.edition, err = j.edition(ctx); err != nil {
		j.owner.abandon(err, "its file system does not answer")
		return nil, err
	}
	j.owner.failures, j.owner.overfull = 0, ""
	j.slot.enter(Ready, "task loaded")
	level := zap.InfoLevel
	if j.fresh {
		level = zap.DebugLevel // one for each item
	}
	j.slot.log.Log(level, "task process ready", zap.String("task", j.task.Name), zap.Int("pid", p.session.Process.PID))
	return p, nil
}

// spawn starts a process before its handshake: a template's child, or a new interpreter
// or program.
func (j *job) spawn(ctx context.Context, fork string) (*occupant, *template.Child, error) {
	if fork != "" && j.fresh {
		switch child, err := j.owner.templates.Fork(ctx, j.task, j.o, fork); {
		case err == nil:
			return newOccupant(child.Session, j.limit), child, nil
		case !errors.Is(err, template.ErrNone):
			return nil, nil, j.judge.unanswered(j.task, err)
		}
	}
	p, err := session.Start(ctx, j.task, j.o, nil)
	if ctx.Err() != nil && p == nil {
		return nil, nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, nil, j.judge.unstarted(j.task, err)
	}
	return newOccupant(p, j.limit), nil, nil
}

// unready ends a process that did not get ready. For a template's child it starts one
// without a template; else the error is the call's.
func (j *job) unready(ctx context.Context, child *template.Child, d *deathError) (*occupant, error) {
	if j.calls.endLapsed(); len(j.calls.list) == 0 {
		j.owner.kill("the call's time was over")
		return nil, calls.ErrLapsed
	}
	if d.evidence.Canceled {
		j.owner.abandon(context.Cause(ctx), "cancelled")
		return nil, context.Cause(ctx)
	}
	if child != nil {
		child.Unready(d.evidence)
		j.owner.retire(false, "did not get ready")
		return j.start(ctx, "")
	}
	d.evidence.Loading = true
	fault := j.judge.diagnose(j.owner.process, d)
	fault.Op, fault.Alone = "start", true
	j.owner.failures++
	if fault.Kind == gpumux.FaultBudget {
		fault.Again, j.owner.overfull = j.owner.overfull == j.task.Name, j.task.Name
	}
	j.owner.retire(false, "did not get ready")
	return nil, fault
}

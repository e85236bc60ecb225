package slot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/process"
	"github.com/gpumux/gpumux/internal/session"
	"github.com/gpumux/gpumux/internal/template"
)

const (
	// lookEvery is how often the slot looks at the board, and at whether the call's time is
	// over, while no message comes.
	lookEvery = 200 * time.Millisecond
	// unsteady is how often the code of a task may change during its import. Then the call
	// is given up.
	unsteady = 3
)

// job is one call on its way through the slot. It waits for items, admits a process to
// them, and lets a conversation run them.
type job struct {
	owner *owner
	slot  *Slot
	judge *judge
	call  calls.Call
	task  launch.Task
	queue *queue
	// o has the options of the call's processes; one may run limit items, 0: any number.
	o     Options
	limit int
	fresh bool
	// finished is how many items have ended.
	finished int
	// least is how many items an idle process waits for, size how many it would take.
	least, size int
	// cancel ends the call's context. left: the call was answered before its end.
	cancel context.CancelCauseFunc
	left   bool
}

// newJob starts to pull the items of a call. Options come from the call, else from the
// task, else from the slot.
func newJob(owner *owner, call calls.Call, task launch.Task) *job {
	j := &job{owner: owner, slot: owner.slot, judge: &owner.judge, call: call, task: task, o: owner.o, limit: task.RecycleItems, least: 1, size: 1}
	j.call.Attempts = max(1, call.Attempts)
	if call.Timeout <= 0 {
		j.call.Timeout = task.Timeout
	}
	if call.Ran == nil {
		j.call.Ran = func(string) {}
	}
	if call.Env != nil {
		j.o.Env = call.Env
	}
	j.o.Memory, j.o.Room = cmp.Or(call.Memory, j.o.Memory), cmp.Or(call.Room, j.o.Room)
	j.o.StartLimit = cmp.Or(task.StartLimit, j.o.StartLimit)
	j.o.Mode = cmp.Or(call.Mode, task.Mode, j.o.Mode, gpumux.ModePersistent)
	if len(task.Command) > 0 {
		j.o.Mode = gpumux.ModeFresh // a command has no process to keep
		if call.Trace != "" {
			env := map[string]string{"TRACEPARENT": call.Trace}
			maps.Copy(env, j.o.Env)
			j.o.Env = env
		}
	}
	j.fresh = j.o.Mode == gpumux.ModeFresh
	j.o.Lease, j.o.Rebuilt = call.Lease, call.Rebuilt
	switch {
	case call.Lease != "":
		j.limit = 0
	case j.fresh:
		j.limit = 1
	}
	j.o.Single = j.limit == 1 || call.Lease != ""
	j.queue = newQueue(call.Items)
	return j
}

// serve runs the call. It returns with the process ready for the next one, or with none.
func (j *job) serve(ctx context.Context) error {
	ctx, j.cancel = context.WithCancelCause(ctx)
	defer j.cancel(nil)
	defer context.AfterFunc(j.slot.life, func() { j.cancel(ErrStopped) })()
	defer j.queue.end(ctx)
	defer j.slot.runs(0, time.Time{})
	j.judge.kills = process.MemoryKills()
	if len(j.task.Command) > 0 {
		return (&command{j}).serve(ctx)
	}
	for {
		more, err := j.await(ctx)
		if err != nil || !more {
			return err
		}
		p, err := j.admit(ctx)
		if err != nil {
			return err
		}
		j.call.Clean = false
		j.slot.enter(Busy, "items of "+j.task.Name)
		if err := j.work(ctx, p); err != nil {
			return err
		}
		switch {
		case j.owner.process == nil: // it ended between two items
		case p.account.Full():
			j.owner.expire(j.fresh)
		default:
			j.slot.enter(Ready, "items finished")
		}
	}
}

// await reports whether there are items to run, when that is known. The process has
// nothing to do meanwhile.
func (j *job) await(ctx context.Context) (more bool, err error) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		known, there, err := j.queue.ready(j.least, j.size)
		switch {
		case there > 0 && known:
			return true, nil
		case known && err != nil && ctx.Err() != nil:
			return false, context.Cause(ctx) // the source has only seen it first
		case known:
			return false, err
		}
		select {
		case <-j.queue.news:
		case <-j.slot.doom:
			if why := j.slot.doomedNow(); why != "" {
				j.owner.retire(false, why)
			}
		case <-tick.C:
			if err := j.held(); err != nil {
				return false, err
			}
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// admit returns a process that may run an item of the call: the present one where it
// suits, else a new one. The process was loaded from the call's edition of the code, and
// the files still have that edition, because the process may import more of them later.
func (j *job) admit(ctx context.Context) (*occupant, error) {
	if p, err := j.leased(); p != nil || err != nil {
		return p, err
	}
	for tries := 1; ; tries++ {
		now, err := j.callEdition(ctx)
		if err == nil && tries > unsteady {
			err = j.judge.outdated(j.task, j.call.Edition, now)
		}
		if err != nil {
			return nil, err
		}
		p := j.owner.process
		if p != nil {
			if why := j.unfit(p, now); why != "" {
				if reason, _ := p.account.Replaced(); reason != "" {
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
			j.settle(now)
			return p, nil
		}
		j.owner.retire(true, "its code changed while it was imported")
	}
}

// leased returns the process of the call's lease, if there is one. That process keeps the
// code that it has loaded, so its edition is not checked.
func (j *job) leased() (*occupant, error) {
	p := j.owner.process
	switch {
	case j.call.Lease == "":
		return nil, nil
	case p == nil || p.lease != j.call.Lease || p.exited():
		if j.call.Process != 0 {
			return nil, calls.ErrGone
		}
		return nil, nil
	case !j.task.Joins(p.session.Task):
		return nil, j.judge.start(j.task, gpumux.Fault{
			Kind:    gpumux.FaultBadInput,
			Message: fmt.Sprintf("the process of the lease runs task %s, and task %s needs another process", p.session.Task.Name, j.task.Name),
			Hint:    "in one lease call tasks of the same folder, interpreter and environment, or use a lease for each",
		})
	}
	p.session.Task = j.task
	return p, nil
}

// callEdition is the edition of the task's files now. It is an error where the call needs
// another one.
func (j *job) callEdition(ctx context.Context) (string, error) {
	now, err := j.edition(ctx)
	if err == nil && j.call.Edition != "" && j.call.Edition != now {
		err = j.judge.outdated(j.task, j.call.Edition, now)
	}
	return now, err
}

// edition is the edition of the task's files now. An error is the fault of a start, or
// why the call ended.
func (j *job) edition(ctx context.Context) (string, error) {
	now, err := j.task.Edition(ctx, j.o.StartLimit)
	return now, j.judge.unanswered(j.task, err)
}

// settle fixes the edition of the call: later processes need the same.
func (j *job) settle(edition string) {
	j.call.Ran(edition)
	j.call.Edition = edition
}

// unfit returns why the process cannot run the call, or "".
func (j *job) unfit(p *occupant, edition string) string {
	switch {
	case p.exited():
		return "ended while idle"
	case p.lease != j.call.Lease:
		return "of another lease"
	case !j.task.Same(p.session.Task):
		return "another task"
	case p.edition != edition:
		return "its code has changed"
	case p.session.Memory.Budget != j.o.Memory:
		return "another budget"
	}
	return p.account.Unfit(j.fresh, j.call.Clean, j.task.RecycleAge)
}

// backoff waits before a start when the last ones failed.
func (j *job) backoff(ctx context.Context) error {
	failures := j.owner.failures
	if failures == 0 {
		return nil
	}
	j.slot.enter(Backoff, fmt.Sprintf("%d starts failed", failures))
	defer j.slot.enter(Vacant, "backoff over")
	timer := time.NewTimer(min(10*time.Second, 100*time.Millisecond<<min(failures-1, 10)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// start makes a new process ready for the call. A fresh one is forked from a template of
// the edition fork, unless that is "" or there is none.
func (j *job) start(ctx context.Context, fork string) (*occupant, error) {
	j.slot.enter(Starting, "call of "+j.task.Name)
	j.slot.starts(j.task.Name)
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
	p.account.Ready(ready.Batch, ready.Trim)
	if child != nil {
		p.edition = child.Edition
	} else if p.edition, err = j.edition(ctx); err != nil {
		j.owner.abandon(err, "its file system does not answer")
		return nil, err
	}
	j.owner.failures = 0
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
			return newOccupant(child.Session, j.o, j.limit), child, nil
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
	return newOccupant(p, j.o, j.limit), nil, nil
}

// unready ends a process that did not get ready. For a template's child it starts one
// without a template; else the error is the call's.
func (j *job) unready(ctx context.Context, child *template.Child, d *deathError) (*occupant, error) {
	if err := j.held(); err != nil {
		j.owner.kill("the call's time was over")
		return nil, err
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
	fault := j.judge.diagnose(j.owner.process, d, nil)
	fault.Op = "start"
	j.owner.failures++
	j.owner.retire(false, "did not get ready")
	return nil, fault
}

// work runs items in p until none is there, or p has run its limit or is gone. On an
// error p is gone.
func (j *job) work(ctx context.Context, p *occupant) error {
	p.session.Memory.Busy(true)
	defer p.session.Memory.Busy(false)
	c := &conversation{job: j, call: &j.call, slot: j.slot, queue: j.queue, p: p}
	err := c.run(ctx)
	var death *deathError
	var lost *lostError
	switch {
	case err == nil:
	case errors.As(err, &death):
		return j.owner.fail(death, c.first())
	case errors.As(err, &lost):
		j.owner.kill(lost.why)
		return nil
	case ctx.Err() != nil:
		j.owner.abandon(err, "call ended: "+err.Error())
	default:
		j.owner.kill("call ended: " + err.Error())
	}
	return err
}

// held is why the call's items are no longer its own, or nil.
func (j *job) held() error {
	if j.call.Held == nil || j.left {
		return nil
	}
	return j.call.Held()
}

// done hands on an item's outcome.
func (j *job) done(d calls.Done) {
	if !j.left {
		j.call.Done(d)
	}
}

// cut leaves the call before its end; later events of the call have no effect.
func (j *job) cut() {
	j.queue.leave()
	j.left = true
	j.cancel(errors.New("the call was answered before its end"))
}

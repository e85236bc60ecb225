package slot

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/process"
)

// lookEvery is how often the board is looked at, and whether the call's time is over,
// while no message comes.
const lookEvery = 200 * time.Millisecond

// order is a call with its task as this worker has it.
type order struct {
	calls.Call
	Task launch.Task
}

// mode is the call's, else the task's, else the slot's, else persistent. A command has no
// process to keep.
func (c order) mode(slot gpumux.Mode) gpumux.Mode {
	if len(c.Task.Command) > 0 {
		return gpumux.Fresh
	}
	return cmp.Or(c.Mode, c.Task.Mode, slot, gpumux.Persistent)
}

func (c order) timeout() time.Duration {
	if c.Timeout > 0 {
		return c.Timeout
	}
	return c.Task.Timeout
}

// job is one call on its way through the slot, and what is left of it.
type job struct {
	owner *owner
	slot  *Slot
	call  order
	queue *queue
	fresh bool
	// finished is how many items have ended.
	finished int
	// least is how many items an idle process waits for, size how many it would take.
	least, size int
	// cancel ends the call's context.
	cancel context.CancelCauseFunc
}

func newJob(o *owner, call order) *job {
	call.Attempts = max(1, call.Attempts)
	return &job{owner: o, slot: o.slot, call: call, queue: newQueue(call.Items), fresh: call.mode(o.o.Mode) == gpumux.Fresh, least: 1, size: 1}
}

// cut lets go of the call before its end. What is left of it changes nothing any more.
func (j *job) cut() {
	j.queue.leave()
	j.call.Done, j.call.Held, j.call.Keep = func(calls.Done) {}, nil, nil
	j.cancel(errors.New("the call was answered before its end"))
}

// lapsed is why the call's items are no longer this worker's, or nil.
func (j *job) lapsed() error {
	if j.call.Held == nil {
		return nil
	}
	return j.call.Held()
}

// serve runs the call. It returns with the process ready for the next one, or with none.
func (j *job) serve(ctx context.Context) error {
	ctx, j.cancel = context.WithCancelCause(ctx)
	defer j.cancel(nil)
	defer context.AfterFunc(j.slot.life, func() { j.cancel(ErrStopped) })()
	defer j.queue.end(ctx)
	defer j.slot.runs(0, time.Time{})
	j.owner.judge.kills = process.MemoryKills()
	if len(j.call.Task.Command) > 0 {
		return (&command{j, admission{j}}).serve(ctx)
	}
	for {
		more, err := j.await(ctx)
		if err != nil || !more {
			return err
		}
		p, err := admission{j}.ready(ctx)
		if err != nil {
			return err
		}
		j.call.Clean = false
		j.slot.enter(Busy, "items of "+j.call.Task.Name)
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
			if err := j.lapsed(); err != nil {
				return false, err
			}
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// work runs items in p until none is there, or p has run its limit or is gone. On an
// error p is gone.
func (j *job) work(ctx context.Context, p *occupant) error {
	p.session.Memory.Busy(true)
	defer p.session.Memory.Busy(false)
	c := &conversation{job: j, p: p}
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

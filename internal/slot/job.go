package slot

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/process"
)

// lookEvery is how often the slot looks at the board, and at whether the time of a call
// is over, while no message comes.
const lookEvery = 200 * time.Millisecond

// job is a call on its way through the slot. It waits for items, admits a process to
// them, and lets a conversation run them. Where the items of a task run at the same time,
// other calls join it meanwhile.
type job struct {
	owner *owner
	slot  *Slot
	judge *judge
	task  launch.Task
	// want is what the first call asks of a process; those that join it ask for the same.
	want  Call
	calls *callers
	// o has the options of the processes; one may run limit items, 0: any number.
	o        Options
	limit    int
	fresh    bool
	finished int
	// enough is how many items an idle process waits for, size how many it would take.
	enough, size int
	// pending is a request that waits for the end of the job; no call joins it any more.
	// unwatch lets go of its context.
	pending *request
	unwatch func() bool
}

// newJob is a job of one call. Options come from the call, else from the task, else from
// the slot.
func newJob(owner *owner, r request) *job {
	want, task := r.call, r.task
	j := &job{owner: owner, slot: owner.slot, judge: &owner.judge, want: want, task: task, o: owner.o, limit: task.Recycle, enough: 1, size: 1,
		calls: newCallers(owner.slot, r.ctx)}
	if want.Env != nil {
		j.o.Env = want.Env
	}
	j.o.Memory, j.o.Room = cmp.Or(want.Memory, j.o.Memory), cmp.Or(want.Room, j.o.Room)
	j.o.StartLimit = cmp.Or(task.StartLimit, j.o.StartLimit)
	j.o.Mode = j.modeOf(want)
	if len(task.Command) > 0 {
		j.o.Mode = gpumux.ModeFresh // a command has no process to keep
	}
	j.fresh = j.o.Mode == gpumux.ModeFresh
	if j.fresh {
		j.limit = 1
	}
	j.o.Single = j.limit == 1
	j.calls.add(r, task.Timeout)
	return j
}

func (j *job) modeOf(call Call) gpumux.Mode {
	return cmp.Or(call.Mode, j.task.Mode, j.owner.o.Mode, gpumux.ModePersistent)
}

// serve runs the calls until all have ended. It returns with the process ready for the
// next job, or with none.
func (j *job) serve() {
	run := j.run
	if len(j.task.Command) > 0 {
		run = (&command{j, j.calls.list[0]}).serve
	}
	err := run(j.calls.ctx)
	j.slot.runs("", 0, time.Time{})
	j.calls.endAll(err)
}

// run runs the items of the calls. An error ends all that are left.
func (j *job) run(ctx context.Context) error {
	for {
		more, err := j.await(ctx)
		if err != nil || !more {
			return err
		}
		p, err := j.admit(ctx)
		if err != nil {
			return err
		}
		if len(j.calls.list) == 0 {
			return nil
		}
		j.want.Clean = false
		j.slot.enter(Busy, "items of "+j.task.Name)
		j.judge.kills = process.MemoryKills()
		if err := j.work(ctx, p); err != nil {
			return err
		}
		j.offer()
		switch {
		case j.owner.process == nil: // it ended between two items, or for one
		case p.account.full():
			j.owner.expire(j.fresh)
		default:
			j.slot.enter(Ready, "items finished")
		}
	}
}

// await reports whether there are items to run, when that is known. The process has
// nothing to do meanwhile.
func (j *job) await(ctx context.Context) (more bool, err error) {
	for tick := time.Tick(lookEvery); ; {
		if ready := j.calls.ready(j.enough, j.size); ready || len(j.calls.list) == 0 {
			return ready, nil
		}
		j.offer()
		select {
		case <-j.calls.news:
		case r := <-j.joins():
			j.join(r)
		case <-j.calls.gone:
			j.unpark()
		case <-j.slot.doom:
			if why := j.slot.doomedNow(); why != "" {
				j.owner.retire(false, why)
			}
		case <-tick:
			j.calls.endLapsed()
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// joins gets the requests of calls that may join the job, or of one that cannot.
func (j *job) joins() <-chan request {
	if !j.open(j.owner.process) {
		return nil
	}
	return j.slot.requests
}

// join lets a call share the process. One that asks for another waits for the end of the
// job, and so do those behind it.
func (j *job) join(r request) {
	p := j.owner.process
	if want := r.call.Edition; want != "" && r.edition != "" && r.edition != want {
		r.reply <- j.judge.outdated(r.task, want, r.edition) // no wait would change that
		return
	}
	if j.suits(p, r) {
		if c, added := j.calls.add(r, j.task.Timeout); added {
			j.judge.kills = process.MemoryKills()
			j.meet(c, p)
			return
		}
	}
	j.pending, j.unwatch = &r, context.AfterFunc(r.ctx, j.calls.wake)
}

// unpark ends the wait of a request whose caller has given up. Calls may join again.
func (j *job) unpark() {
	if r := j.pending; r != nil && r.ctx.Err() != nil {
		j.pending = nil
		r.reply <- context.Cause(r.ctx)
	}
}

func (j *job) suits(p *occupant, r request) bool {
	return !r.clear && !r.call.Apart && !r.call.Clean && j.modeOf(r.call) == j.o.Mode &&
		cmp.Or(r.call.Memory, j.owner.o.Memory) == j.o.Memory && r.task.Same(j.task) &&
		r.edition == p.edition && (r.call.Edition == "" || r.call.Edition == p.edition)
}

// open reports whether calls may join the job in its process. One that has got too old
// runs what it has, and is replaced.
func (j *job) open(p *occupant) bool {
	return p != nil && p.account.concurrent > 0 && j.pending == nil && j.calls.ctx.Err() == nil && len(j.calls.list) > 0 &&
		!j.want.Apart && !j.fresh && p.account.unfit(false, false) == ""
}

// offer tells others how many further items the process could use: half as many as run at
// the same time are to wait behind those.
func (j *job) offer() {
	room, p := int64(0), j.owner.process
	if j.open(p) && j.slot.doomedNow() == "" {
		room = int64(p.account.concurrent*3+1)/2 - j.calls.remaining()
	}
	if all := j.calls.list; len(all) > 0 && j.slot.offers(len(all), max(0, room)) && all[0].Spare != nil {
		all[0].Spare()
	}
}

// settle fixes the edition of the job: later processes need the same.
func (j *job) settle(p *occupant) {
	j.want.Edition = p.edition
	for _, c := range slices.Clone(j.calls.list) {
		j.meet(c, p)
	}
}

// meet tells a call which process runs its items, and ends the call if it has no use for
// that.
func (j *job) meet(c *call, p *occupant) {
	err := c.Work.Meet(calls.Process{Edition: p.edition, Batch: p.account.batch, Concurrent: p.account.concurrent})
	if err != nil {
		j.calls.end(c, err)
	}
}

// work runs items in p until none is there, or p has run its limit or is gone. Calls that
// are to blame for its death have ended then; the others' items wait for another process.
// On an error p is gone.
func (j *job) work(ctx context.Context, p *occupant) error {
	p.session.Memory.Busy(true)
	defer p.session.Memory.Busy(false)
	c := &conversation{answers: answers{job: j, slot: j.slot, p: p, flight: &flight{concurrent: p.account.concurrent}}}
	err := c.run(ctx)
	var death *deathError
	var lost *lostError
	switch {
	case err == nil:
	case errors.As(err, &death):
		fault := j.judge.diagnose(p, death)
		c.charge(fault, c.blamed())
		j.owner.fail(fault)
		c.giveBack()
	case errors.As(err, &lost):
		j.owner.kill(lost.why)
		c.giveBack()
	case ctx.Err() != nil:
		j.owner.abandon(err, "call ended: "+err.Error())
		return err
	default:
		j.owner.kill("call ended: " + err.Error())
		return err
	}
	return nil
}

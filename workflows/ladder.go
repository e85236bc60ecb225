package workflows

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/text"
)

const defaultPatience = time.Minute

// ladder is the pools of a map, first choice first, and which of them serve now.
type ladder struct {
	rungs    []*rung
	patience time.Duration
	// changed is called when a pool is passed over, or taken up again.
	changed func(workflow.Context)
}

type rung struct {
	name, queue string
	// passed says that the pool is passed over now, because nobody serves it.
	passed bool
	ever   bool
	// watched says that an activity waits for the pool to lose its last healthy device.
	watched bool
	// placed are the activities on it, in the order of their start.
	placed []*placement
}

// placement is an activity on a rung, the first rung that it may run on, and how many
// items it has.
type placement struct {
	from  int
	items int64
	end   workflow.CancelFunc
}

func newLadder(in gpumux.MapInput, changed func(workflow.Context)) *ladder {
	l := &ladder{patience: cmp.Or(time.Duration(in.Patience), defaultPatience), changed: changed}
	for _, name := range in.Rungs() {
		l.rungs = append(l.rungs, &rung{name: name, queue: names.PoolQueue(name)})
	}
	return l
}

// serving is the first rung from this one on that is not passed over, or the last one.
func (l *ladder) serving(at int) int {
	for l.hasLarger(at) && l.rungs[at].passed {
		at++
	}
	return at
}

func (l *ladder) hasLarger(at int) bool { return at+1 < len(l.rungs) }

// place makes the context of an activity on the rung that serves this one, which ends if
// another rung is to serve it. Call leave when the activity has ended; it reports whether
// that was the reason.
func (l *ladder) place(ctx workflow.Context, from int, items int64) (at int, within workflow.Context, leave func() (passed bool)) {
	at = l.serving(from)
	for each := from; each <= at; each++ {
		l.watch(ctx, l.rungs[each])
	}
	r := l.rungs[at]
	within, cancel := workflow.WithCancel(ctx)
	p := &placement{from, items, cancel}
	r.placed = append(r.placed, p)
	return at, within, func() bool {
		passed := within.Err() != nil && ctx.Err() == nil
		r.placed = slices.DeleteFunc(r.placed, func(other *placement) bool { return other == p })
		cancel()
		return passed
	}
}

// runOnFirst runs an activity on the first served rung, and moves with it.
func (l *ladder) runOnFirst(ctx workflow.Context, run func(ctx workflow.Context, queue string) error) error {
	for {
		at, within, leave := l.place(ctx, 0, 0)
		err := run(within, l.rungs[at].queue)
		if !leave() {
			return err
		}
	}
}

// watch follows in the background whether a rung has a healthy device, if there are
// others. Busy slots do not matter: a worker runs the activity for as long as one of its
// devices works, and if there is no worker that could, nobody starts it in time.
func (l *ladder) watch(ctx workflow.Context, r *rung) {
	if r.watched || len(l.rungs) == 1 {
		return
	}
	r.watched = true
	workflow.Go(ctx, func(ctx workflow.Context) {
		r.follow(ctx, r.passed, l.patience, func(ctx workflow.Context, away bool) { l.pass(ctx, r, away) })
		r.watched = false
	})
}

// follow tells when no worker has served the rung for so long, and when one does again.
func (r *rung) follow(ctx workflow.Context, away bool, limit time.Duration, tell func(ctx workflow.Context, away bool)) {
	for away || unserved(r.ask(ctx, contract.WatchInput{}, limit)) {
		tell(ctx, true)
		if r.ask(ctx, contract.WatchInput{Once: true}, 0) != nil {
			return
		}
		away = false
		tell(ctx, away)
	}
}

// ask waits until a worker has answered, or until none has begun to for so long.
func (r *rung) ask(ctx workflow.Context, in contract.WatchInput, limit time.Duration) error {
	return contract.Get(ctx, workflow.ExecuteActivity(watching(ctx, r.name, r.queue, limit), contract.WatchPool, in), nil)
}

// watching is for an activity that ends if no worker has begun it for so long.
func watching(ctx workflow.Context, name, queue string, limit time.Duration) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: contract.WatchQueue(queue), StartToCloseTimeout: endless, ScheduleToStartTimeout: limit,
		HeartbeatTimeout: contract.HeartbeatTimeout, Summary: text.Plain("watch " + name),
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 1},
	})
}

// fairly is the priority of an activity that waits for a slot. The fairness key is the
// input's, that of the workflow, or else the map's ID: so maps share the slots.
func fairly(ctx workflow.Context, in gpumux.MapInput, id string) temporal.Priority {
	key := cmp.Or(in.FairnessKey, workflow.GetInfo(ctx).Priority.FairnessKey, names.FairnessKey(id))
	return temporal.Priority{PriorityKey: in.Priority, FairnessKey: key, FairnessWeight: float32(in.FairnessWeight)}
}

// unserved reports whether an activity ended because nobody took it.
func unserved(err error) bool {
	var timeout *temporal.TimeoutError
	return errors.As(err, &timeout) && timeout.TimeoutType() == enums.TIMEOUT_TYPE_SCHEDULE_TO_START
}

// pass passes a rung over, or takes it up again. Work on passed rungs moves to those that
// serve now; while none does, it waits on the last one.
func (l *ladder) pass(ctx workflow.Context, which *rung, over bool) {
	which.passed, which.ever = over, which.ever || over
	for on, r := range l.rungs {
		for _, p := range r.placed {
			if r.passed && l.serving(p.from) != on {
				p.end()
			}
		}
	}
	l.changed(ctx)
}

func (l *ladder) passedOver(ever bool) (pools []string) {
	for _, r := range l.rungs {
		if r.passed || ever && r.ever {
			pools = append(pools, r.name)
		}
	}
	return pools
}

func (l *ladder) carry() map[int]bool {
	passed := map[int]bool{}
	for at, r := range l.rungs {
		if r.ever {
			passed[at] = r.passed
		}
	}
	return passed
}

// resume takes over the result of carry. Rungs that are watched here keep theirs.
func (l *ladder) resume(passed map[int]bool) {
	for at, r := range l.rungs {
		if now, ever := passed[at]; ever {
			r.passed, r.ever = r.watched && r.passed || !r.watched && now, true
		}
	}
}

package workflows

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/text"
)

// defaultPatience is how long a pool may lack a healthy device.
const defaultPatience = time.Minute

// rung is a pool of the ladder.
type rung struct {
	queue string
	// passed says that the pool is passed over now, because nobody serves it.
	passed bool
	// ever says that it was at some time.
	ever bool
	// watched says that a worker is asked to tell when the pool is no longer served.
	watched bool
	// handed is what was handed to it, in the order of handing.
	handed []*errand
}

// errand is an activity on a rung, and the first rung that it may run on.
type errand struct {
	from int
	end  workflow.CancelFunc
}

// serving is the first rung from this one on that is not passed over, or the last one.
func (e *engine) serving(at int) int {
	for at+1 < len(e.rungs) && e.rungs[at].passed {
		at++
	}
	return at
}

// hand makes the context of an activity on the rung that serves this one, which ends if
// another rung is to serve it. Call done when the activity has ended; it reports whether
// that was the reason.
func (e *engine) hand(ctx workflow.Context, from int) (at int, within workflow.Context, done func() (passed bool)) {
	at = e.serving(from)
	for each := from; each <= at; each++ {
		e.watch(ctx, each)
	}
	r := e.rungs[at]
	within, cancel := workflow.WithCancel(ctx)
	h := &errand{from, cancel}
	r.handed = append(r.handed, h)
	return at, within, func() bool {
		passed := within.Err() != nil && ctx.Err() == nil
		r.handed = slices.DeleteFunc(r.handed, func(o *errand) bool { return o == h })
		cancel()
		return passed
	}
}

// runOn runs an activity on the first served rung from this one on, and moves with it.
func (e *engine) runOn(ctx workflow.Context, from int, run func(ctx workflow.Context, queue string) error) error {
	for {
		at, within, done := e.hand(ctx, from)
		err := run(within, e.rungs[at].queue)
		if !done() {
			return err
		}
	}
}

// watch follows in the background whether a rung has a healthy device, if there are
// others. Busy slots do not matter: a worker runs the activity for as long as one of its
// devices works, and if there is no worker that could, nobody starts it in time.
func (e *engine) watch(ctx workflow.Context, at int) {
	r := e.rungs[at]
	if r.watched || len(e.rungs) == 1 {
		return
	}
	r.watched = true
	workflow.Go(ctx, func(ctx workflow.Context) {
		for {
			if !r.passed && !unserved(e.watchPool(ctx, at, contract.WatchInput{}, cmp.Or(time.Duration(e.in.Patience), defaultPatience))) {
				break
			}
			e.pass(ctx, at, true)
			if e.watchPool(ctx, at, contract.WatchInput{Once: true}, 0) != nil {
				break
			}
			e.pass(ctx, at, false)
		}
		r.watched = false
	})
}

// watchPool waits until a worker has answered, or until none has begun to for so long.
func (e *engine) watchPool(ctx workflow.Context, at int, in contract.WatchInput, limit time.Duration) error {
	return workflow.ExecuteActivity(watching(ctx, e.in.Rungs()[at], e.rungs[at].queue, limit), contract.WatchPool, in).Get(ctx, nil)
}

// watching is for an activity that ends if no worker has begun it for so long.
func watching(ctx workflow.Context, name, queue string, limit time.Duration) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: contract.WatchQueue(queue), StartToCloseTimeout: endless, ScheduleToStartTimeout: limit,
		HeartbeatTimeout: contract.HeartbeatTimeout, Summary: text.Plain("watch " + name),
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 1},
	})
}

// unserved reports whether an activity ended because nobody took it.
func unserved(err error) bool {
	var timeout *temporal.TimeoutError
	return errors.As(err, &timeout) && timeout.TimeoutType() == enums.TIMEOUT_TYPE_SCHEDULE_TO_START
}

// pass passes a rung over, or takes it up again. What was handed to rungs that are passed
// over goes to those that serve now; while no rung does, it waits on the last one.
func (e *engine) pass(ctx workflow.Context, at int, over bool) {
	r := e.rungs[at]
	r.passed, r.ever, e.changed = over, r.ever || over, true
	for on, r := range e.rungs {
		for _, h := range r.handed {
			if r.passed && e.serving(h.from) != on {
				h.end()
			}
		}
	}
	if e.onChange != nil {
		e.onChange(ctx)
	}
}

// passedOver are the pools that are passed over now, or were at some time.
func (e *engine) passedOver(ever bool) (pools []string) {
	for at, r := range e.rungs {
		if r.passed || ever && r.ever {
			pools = append(pools, e.in.Rungs()[at])
		}
	}
	return pools
}

// carryPassed are the rungs that were passed over, and whether they are now.
func (e *engine) carryPassed() map[int]bool {
	passed := map[int]bool{}
	for at, r := range e.rungs {
		if r.ever {
			passed[at] = r.passed
		}
	}
	return passed
}

// resumePassed takes over what carryPassed gave, but for rungs that are watched here:
// that is newer.
func (e *engine) resumePassed(passed map[int]bool) {
	for at, r := range e.rungs {
		if now, ever := passed[at]; ever {
			r.passed, r.ever = r.watched && r.passed || !r.watched && now, true
		}
	}
}

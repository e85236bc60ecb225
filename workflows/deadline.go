package workflows

import (
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
)

// within runs a map that began at a time until its deadlines; done tells how many items
// have a result by then. All workflows of a map have the same deadlines.
func (e *engine) within(ctx workflow.Context, began time.Time, done func() int64, run func(workflow.Context) error) error {
	inside, cancel := workflow.WithCancel(ctx)
	defer cancel()
	var late error
	end := func(op, hint, format string, args ...any) {
		message := fmt.Sprintf(format, args...) + fmt.Sprintf("; %d of %d items are done", done(), e.total)
		late = errorOf(&gpumux.Fault{Kind: gpumux.FaultTimeout, Op: op, Message: message, Task: e.in.Name(), Hint: hint})
		cancel()
	}
	if e.in.MapTimeout > 0 {
		workflow.Go(inside, func(ctx workflow.Context) {
			left := time.Duration(e.in.MapTimeout) - workflow.Now(ctx).Sub(began)
			if workflow.NewTimerWithOptions(ctx, max(0, left), workflow.TimerOptions{Summary: "mapTimeout"}).Get(ctx, nil) == nil {
				end("run", "give it a longer mapTimeout", "the map took longer than its mapTimeout of %s", e.in.MapTimeout)
			}
		})
	}
	if e.in.PoolTimeout > 0 {
		for _, s := range e.stages {
			workflow.Go(inside, func(ctx workflow.Context) {
				if s.ladder.awaitLoss(ctx, time.Duration(e.in.PoolTimeout), func() bool { return e.paused }) == nil {
					end("start", "start a worker for one of them (`gpumux workers` lists those there are)",
						"no worker had a healthy device for %s within the poolTimeout of %s", strings.Join(s.in.Rungs(), " or "), e.in.PoolTimeout)
				}
			})
		}
	}
	err := run(inside)
	if err != nil && late != nil && ctx.Err() == nil {
		err = late
	}
	return e.ended(err, done())
}

// awaitLoss returns nil once no rung has had a worker with a healthy device for so long,
// and the map is not paused.
func (l *ladder) awaitLoss(ctx workflow.Context, limit time.Duration, paused func() bool) error {
	lost := 0
	for _, r := range l.rungs {
		workflow.Go(ctx, func(ctx workflow.Context) {
			r.follow(ctx, false, limit, func(_ workflow.Context, away bool) {
				if lost--; away {
					lost += 2
				}
			})
		})
	}
	return workflow.Await(ctx, func() bool { return lost == len(l.rungs) && !paused() })
}

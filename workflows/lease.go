package workflows

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/text"
)

// lease is a lease and the activity that holds its slot.
type lease struct {
	o      LeaseOptions
	rungs  []string
	queues []string // of the rungs
	id     string
	tries  int
	// hold ends with the slot; letGo ends it.
	hold  workflow.Future
	letGo workflow.CancelFunc
	queue string
	seat  gpumux.Seat
	// deadline is when its time is over; zero before it has a slot.
	deadline time.Time
	// losses counts those since the last finished call, broken is the one that is still to
	// be rebuilt, or told.
	losses int
	broken *gpumux.Fault
	// over is why no call can work any more.
	over error
}

func newLease(ctx workflow.Context, o LeaseOptions) (*lease, error) {
	o.TTL = cmp.Or(o.TTL, defaultTTL)
	in := gpumux.MapInput{Task: "any", Range: &gpumux.Range{}, Ladder: o.Ladder, Patience: gpumux.Duration(o.Patience),
		Timeout: gpumux.Duration(o.Timeout), Attempts: o.Attempts}
	if err := in.Validate(); err != nil {
		return nil, invalid(err)
	}
	if o.TTL < 0 || o.TTL > contract.MaxLease {
		return nil, invalid(fmt.Errorf("lease: TTL %s is outside 0 to %s", o.TTL, contract.MaxLease))
	}
	l := &lease{o: o, rungs: in.Rungs(), letGo: func() {}}
	for _, rung := range l.rungs {
		l.queues = append(l.queues, contract.LeaseQueue(names.PoolQueue(rung)))
	}
	err := contract.ReadRecorded(workflow.SideEffect(ctx, func(workflow.Context) any { return contract.LeaseID(newID()) }), &l.id)
	return l, err
}

func newID() string { return strings.ToLower(rand.Text()) }

// acquire waits for a slot of the first pool of the ladder that offers leases.
func (l *lease) acquire(ctx workflow.Context) error {
	for at := 0; ; {
		served, fault, err := l.ask(ctx, at)
		switch {
		case err != nil:
			return err
		case fault == nil && served:
			return nil
		case fault != nil && fault.Kind == gpumux.FaultBadInput && fault.Blameless:
			workflow.GetLogger(ctx).Warn("a lease waits for a worker of its version", "fault", fault.Error())
			if err := workflow.Sleep(ctx, contract.AnswerTimeout); err != nil {
				return err
			}
		case fault != nil:
			if l.losses++; !fault.Blameless || l.losses > maxLosses {
				return errorOf(fault)
			}
		case at+1 < len(l.rungs):
			at++
		default:
			fault := &gpumux.Fault{
				Kind: gpumux.FaultSlotLost, Op: "start", Message: fmt.Sprintf("no worker has offered a lease of pool %s for %s", l.rungs[at], l.patience()),
				Hint: "start a worker that serves the pool; a worker leases half of a pool's slots, so none of a single one, or as many as leases says " +
					"in its file, and none of a cordoned device (gpumux workers, gpumux gpus)",
			}
			return errorOf(fault)
		}
	}
}

func (l *lease) patience() time.Duration { return cmp.Or(l.o.Patience, defaultPatience) }

// ask asks for a slot of one pool. It is not served where nobody offers one; the fault
// comes from the worker that took it.
func (l *lease) ask(ctx workflow.Context, at int) (served bool, fault *gpumux.Fault, err error) {
	done, err := budgetOf(ctx).ask(ctx, l.queues[at])
	if err != nil {
		return false, nil, err
	}
	defer done()
	l.tries++
	l.queue = contract.QueueOf(l.id, l.tries)
	left := l.o.TTL
	if !l.deadline.IsZero() {
		left = l.deadline.Sub(workflow.Now(ctx))
	}
	if left <= 0 {
		return false, &gpumux.Fault{Kind: gpumux.FaultSlotLost, Op: "start", Message: fmt.Sprintf("the time to live of the lease, %s, is over", l.o.TTL)}, nil
	}
	id := workflow.GetInfo(ctx).WorkflowExecution.ID
	holding, letGo := workflow.NewDisconnectedContext(ctx) // a call's context may end before the lease
	l.letGo = letGo
	l.hold = workflow.ExecuteActivity(workflow.WithActivityOptions(holding, workflow.ActivityOptions{
		TaskQueue: l.queues[at], StartToCloseTimeout: left + time.Hour, HeartbeatTimeout: contract.HeartbeatTimeout,
		RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}, Summary: text.Plain("lease of " + l.rungs[at]),
		Priority: fairly(ctx, gpumux.MapInput{}, id),
	}), contract.HoldSlot, contract.Lease{
		ID: l.id, Queue: l.queue, Workflow: id, TTL: gpumux.Duration(left), Rebuilt: l.o.Rebuild != nil,
	})
	waiting, stop := workflow.WithCancel(ctx)
	defer stop()
	opened := workflow.ExecuteActivity(workflow.WithActivityOptions(waiting, workflow.ActivityOptions{
		TaskQueue: l.queue, StartToCloseTimeout: contract.AnswerTimeout, Summary: text.Plain("wait for the slot"),
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 1},
	}), contract.CallSlot, contract.SlotCall{Open: true})
	watched := workflow.ExecuteActivity(watching(waiting, l.rungs[at], l.queues[at], l.patience()), contract.WatchPool, contract.WatchInput{})
	unoffered := false
	for !opened.IsReady() && !l.hold.IsReady() && !unoffered && ctx.Err() == nil {
		s := workflow.NewSelector(ctx).AddFuture(opened, func(workflow.Future) {}).AddFuture(l.hold, func(workflow.Future) {})
		if !watched.IsReady() {
			s.AddFuture(watched, func(f workflow.Future) { unoffered = unserved(contract.Get(ctx, f, nil)) })
		}
		s.AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) {})
		s.Select(ctx)
	}
	switch {
	case opened.IsReady():
		var answer contract.SlotAnswer
		err := contract.Get(ctx, opened, &answer)
		if err == nil {
			if l.seat = answer.Seat; l.deadline.IsZero() {
				l.deadline = workflow.Now(ctx).Add(l.o.TTL)
			}
			return true, nil, nil
		}
		letGo()
		if fault := unreadable(err); fault != nil {
			return false, fault, ctx.Err()
		}
		return false, l.ended(ctx), ctx.Err()
	case l.hold.IsReady():
		return false, l.ended(ctx), ctx.Err()
	}
	letGo()
	return false, nil, ctx.Err()
}

// unreadable is the fault of an answer that came and could not be read, or nil.
func unreadable(err error) *gpumux.Fault {
	if temporal.IsCanceledError(err) || errors.As(err, new(*temporal.ActivityError)) {
		return nil
	}
	return &gpumux.Fault{Kind: gpumux.FaultSlotLost, Op: "start", Message: "the worker's answer cannot be read: " + err.Error(),
		Hint: "give the worker of this workflow the codec of the gpumux workers (codec.Apply)"}
}

// callOptions returns the options of an activity on the lease's queue.
func (l *lease) callOptions(ctx workflow.Context, in contract.SlotCall) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue: l.queue, StartToCloseTimeout: endless, HeartbeatTimeout: contract.HeartbeatTimeout, Summary: text.Plain(cmp.Or(in.Task, "residents, or the end of the lease")),
		RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
	})
}

// close gives the slot back, also for a workflow that was cancelled.
func (l *lease) close(ctx workflow.Context) {
	if l.hold.IsReady() {
		return
	}
	ctx, cancel := workflow.NewDisconnectedContext(ctx)
	defer cancel()
	in := contract.SlotCall{Close: true}
	closing := workflow.WithScheduleToCloseTimeout(l.callOptions(ctx, in), contract.AnswerTimeout)
	workflow.NewSelector(ctx).AddFuture(l.hold, func(workflow.Future) {}).AddFuture(
		workflow.ExecuteActivity(closing, contract.CallSlot, in), func(f workflow.Future) {
			if contract.Get(ctx, f, nil) != nil {
				l.letGo()
			}
		}).Select(ctx)
	_ = contract.Get(ctx, l.hold, nil)
}

// call does a call, on another slot or with another process where those before are lost
// and can be rebuilt.
func (l *lease) call(ctx workflow.Context, in contract.SlotCall, rebuilds bool) (answer contract.SlotAnswer, err error) {
	for {
		if err := cmp.Or(ctx.Err(), l.over); err != nil {
			return answer, err
		}
		if l.broken != nil && !rebuilds {
			if err := l.recover(ctx); err != nil {
				return answer, err
			}
		}
		fault, err := l.try(ctx, in, &answer)
		if fault == nil {
			if err == nil && !rebuilds {
				l.losses = 0
			}
			return answer, err
		}
		if l.broken = fault; rebuilds {
			return answer, errorOf(fault)
		}
	}
}

// try does a call once. The fault reports a loss that is not the call's doing.
func (l *lease) try(ctx workflow.Context, in contract.SlotCall, answer *contract.SlotAnswer) (*gpumux.Fault, error) {
	budget := budgetOf(ctx)
	if err := budget.wait(ctx, &waiter{}, envelope+len(in.Item)); err != nil {
		return nil, err
	}
	defer budget.release()
	within, cancel := workflow.WithCancel(ctx)
	defer cancel()
	call := workflow.ExecuteActivity(l.callOptions(within, in), contract.CallSlot, in)
	workflow.NewSelector(ctx).AddFuture(call, func(workflow.Future) {}).AddFuture(l.hold, func(workflow.Future) {}).Select(ctx)
	if !call.IsReady() {
		return l.ended(ctx), nil
	}
	err := contract.Get(ctx, call, answer)
	fault := contract.FaultTold(err)
	var timeout *temporal.TimeoutError
	switch {
	case err == nil:
		l.seat = answer.Seat
		return nil, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.As(err, &timeout):
		// The worker is gone, or hangs; the server says so of the slot at about the same time.
		l.close(ctx)
		return l.silent(), nil
	case fault != nil && (fault.Kind == gpumux.FaultSlotLost || fault.Blameless):
		return fault, nil
	}
	return nil, unwrapFault(err)
}

// ended is why the slot is not held any more.
func (l *lease) ended(ctx workflow.Context) *gpumux.Fault {
	err := contract.Get(ctx, l.hold, nil)
	if fault := contract.FaultTold(err); fault != nil {
		return fault
	}
	fault := l.silent()
	if temporal.IsCanceledError(err) || err == nil {
		fault.Message = "the slot was let go of"
	}
	return fault
}

// silent is the fault of a worker that does not answer.
func (l *lease) silent() *gpumux.Fault {
	return &gpumux.Fault{Kind: gpumux.FaultSlotLost, Op: "run", Slot: l.seat.Slot, Device: l.seat.Device, Host: l.seat.Host, Blameless: true,
		Message: fmt.Sprintf("the worker %s, which held the slot, gave no sign of life for %s; what its process kept is gone",
			l.seat.Worker, contract.HeartbeatTimeout)}
}

// recover finds a slot again and rebuilds what calls need there. The call that met the
// loss gets the error.
func (l *lease) recover(ctx workflow.Context) error {
	for l.broken != nil {
		fault := l.broken
		gone := l.hold.IsReady() || fault.Kind == gpumux.FaultDeviceLost
		if l.losses++; l.o.Rebuild == nil || !fault.Blameless || l.losses > maxLosses {
			err := errorOf(fault)
			if gone {
				l.over = err
			}
			if l.o.Rebuild == nil {
				l.broken = nil
			}
			return err
		}
		workflow.GetLogger(ctx).Warn("a lease lost its slot or its process and is built anew", "fault", fault.Error())
		if gone {
			l.close(ctx)
			if err := l.acquire(ctx); err != nil {
				if ctx.Err() == nil {
					l.over = err
				}
				return err
			}
		}
		if err := l.rebuild(ctx); err != nil {
			return err
		}
	}
	return nil
}

// rebuild runs Rebuild. It leaves broken what the function met, or that it failed: then
// it runs before the next call.
func (l *lease) rebuild(ctx workflow.Context) error {
	fault := *l.broken
	fault.Kind = gpumux.FaultSlotLost // the slot is another one, whatever was lost
	l.broken = nil
	s := &Slot{lease: l, rebuilds: true}
	err := l.o.Rebuild(ctx, s)
	s.settle(ctx)
	if l.broken != nil {
		return nil // it is judged like any other loss
	}
	if err != nil {
		l.broken = &fault
	}
	return err
}

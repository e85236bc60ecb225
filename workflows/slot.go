package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// LeaseOptions of WithSlot. The zero value is right for most leases.
type LeaseOptions struct {
	// Ladder names the pools to use, first choice first. Default: the pool "gpu".
	Ladder []string
	// Patience is how long a pool may lack a worker that offers leases before the next one
	// of the ladder is asked. After the last one WithSlot fails. A pool that is busy is
	// waited for. Default 1 min.
	Patience time.Duration
	// TTL is how long the lease lasts, once it has a slot. At most 24 h; default 10 min.
	TTL time.Duration
	// Timeout bounds a call, Attempts how often one that raises is tried. Default: the
	// task's own; 1.
	Timeout  time.Duration
	Attempts int
	// Rebuild keeps anew what calls need, when the process or the slot of the lease was
	// lost: it runs before the next call, on another slot where need be. A handle from
	// before then stands for the resident that Rebuild kept under the same key, so give the
	// keys in the task: gpumux.keep(value, key="model"). Default: what is lost is the error
	// of the call.
	Rebuild func(ctx workflow.Context, s *Slot) error
}

// defaultTTL is how long a lease lasts that doesn't say.
const defaultTTL = 10 * time.Minute

// maxLosses is how often in a row a lease may lose what it has without a finished call.
const maxLosses = 5

// Slot is a slot that a lease has, for the calls of one function given to WithSlot.
type Slot struct {
	lease *lease
	// last is the newest call; the next one waits for it.
	last workflow.Future
	// rebuilds: the Slot is Rebuild's. A loss is an error that the lease judges.
	rebuilds bool
}

// Seat is where the slot is now. It changes when the lease begins again elsewhere.
func (s *Slot) Seat() gpumux.Seat { return s.lease.seat }

// WithSlot holds a slot while f runs: all calls of f run in one task process, in order,
// so what a call keeps there (gpumux.keep) is there for the next one. The slot is free
// again when f has returned and the calls that it began have ended; an error of f cancels
// them.
//
// A lease ends with its TTL, with its worker or host, and with the workflow. A call then
// fails with a gpumux.Fault of the kind slot_lost, which errors.As finds, unless Rebuild
// is given. A pool leases only some of its slots, so that maps go on.
func WithSlot(ctx workflow.Context, o LeaseOptions, f func(ctx workflow.Context, s *Slot) error) error {
	l, err := newLease(ctx, o)
	if err != nil {
		return err
	}
	within, cancel := workflow.WithCancel(ctx)
	defer cancel()
	workflow.Go(within, func(within workflow.Context) {
		within.Done().Receive(within, nil)
		if ctx.Err() != nil {
			l.letGo()
		}
	})
	if err := l.acquire(ctx); err != nil {
		return err
	}
	s := &Slot{lease: l}
	err = f(within, s)
	if err != nil {
		cancel()
	}
	s.settle(ctx)
	l.over = invalid(errors.New("a call on a slot whose lease has ended: make all calls before the function given to WithSlot returns"))
	l.close(ctx) // not deferred: whoever waits while a panic unwinds hides it
	return err
}

// settle waits for all calls that were made.
func (s *Slot) settle(ctx workflow.Context) {
	for last := s.last; last != nil; {
		_ = last.Get(ctx, nil) // its caller has its error
		if last == s.last {
			return
		}
		last = s.last
	}
}

// Call runs a task for one item on the slot and returns its value. A gpumux.Resident
// in the item becomes its value there.
func Call[Out any](ctx workflow.Context, s *Slot, task string, item any) (Out, error) {
	return CallAsync[Out](ctx, s, task, item).Get(ctx)
}

// CallAsync is Call that doesn't wait. Calls on a slot run in the order in which they
// were made; those on several slots side by side.
func CallAsync[Out any](ctx workflow.Context, s *Slot, task string, item any) Future[Out] {
	in := contract.SlotCall{Task: task, Timeout: gpumux.Duration(s.lease.o.Timeout), Attempts: s.lease.o.Attempts}
	var err error
	if in.Item, err = contract.EncodeItem(item, "put it in a file, and give its path"); err != nil {
		err = fmt.Errorf("the item for task %s %w", task, err)
	} else {
		err = in.Validate()
	}
	if err != nil {
		future, settable := workflow.NewFuture(ctx)
		settable.SetError(invalid(err))
		return Future[Out]{future}
	}
	return call[Out](ctx, s, in)
}

// Move copies a resident from one slot to another, through the memory of their hosts and
// the workers' store, and returns the handle of the copy. The original stays until Drop.
// The value has to be one that Python's pickle takes, as arrays and modules are.
func Move(ctx workflow.Context, h gpumux.Resident, from, to *Slot) (gpumux.Resident, error) {
	var object string
	err := contract.ReadRecorded(workflow.SideEffect(ctx, func(workflow.Context) any { return contract.ResidentsFolder + newID() }), &object)
	if err != nil {
		return gpumux.Resident{}, err
	}
	if err := call[json.RawMessage](ctx, from, contract.SlotCall{Save: &h, Object: object}).Done().Get(ctx, nil); err != nil {
		return gpumux.Resident{}, err
	}
	moved, err := call[gpumux.Resident](ctx, to, contract.SlotCall{Load: &h, Object: object}).Get(ctx)
	if err != nil {
		forgetting, cancel := workflow.NewDisconnectedContext(ctx)
		defer cancel()
		_ = contract.Get(forgetting, workflow.ExecuteActivity(housekeeping(forgetting, "delete what did not move"), contract.Forget, contract.Moving{Object: object}), nil)
	}
	return moved, err
}

// Drop lets go of residents of the slot, so their memory is free. All go when the lease
// ends.
func (s *Slot) Drop(ctx workflow.Context, residents ...gpumux.Resident) error {
	if len(residents) == 0 {
		return nil
	}
	return call[json.RawMessage](ctx, s, contract.SlotCall{Drop: residents}).Done().Get(ctx, nil)
}

// call does a call behind those that were made before it.
func call[Out any](ctx workflow.Context, s *Slot, in contract.SlotCall) Future[Out] {
	before := s.last
	future, settable := workflow.NewFuture(ctx)
	s.last = future
	workflow.Go(ctx, func(ctx workflow.Context) {
		if before != nil {
			_ = before.Get(ctx, nil)
		}
		var result Result[Out]
		answer, err := s.lease.call(ctx, in, s.rebuilds)
		if err == nil && answer.Value != nil {
			if result = resultOf[Out](gpumux.Result{Value: answer.Value}); result.Fault != nil {
				err = errorOf(result.Fault)
			}
		}
		settable.Set(result.Value, err)
	})
	return Future[Out]{future}
}

package workflows_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/workflows"
)

// desk stands in for workers that offer leases. answer is asked for each call by its
// task; a "slot" fault takes the slot with it.
type desk struct {
	answer func(task string) error

	mu    sync.Mutex
	calls []string
	open  map[string]context.CancelFunc // the leases, by queue
	slots int                           // given so far
}

func lostFault(kind gpumux.FaultKind, blameless bool) error {
	fault := gpumux.Fault{Kind: kind, Op: "run", Message: "gone", Blameless: blameless}
	return temporal.NewApplicationErrorWithOptions(fault.Error(), string(kind), temporal.ApplicationErrorOptions{NonRetryable: true, Details: []any{fault}})
}

func (d *desk) hold(ctx context.Context, in contract.Lease) (gpumux.Seat, error) {
	held, end := context.WithCancel(ctx)
	d.mu.Lock()
	d.open[in.Queue] = end
	d.slots++
	d.mu.Unlock()
	for {
		select {
		case <-held.Done():
			d.mu.Lock()
			delete(d.open, in.Queue)
			d.mu.Unlock()
			return gpumux.Seat{}, ctx.Err()
		case <-time.After(time.Millisecond):
			activity.RecordHeartbeat(ctx)
		}
	}
}

func (d *desk) call(ctx context.Context, in contract.SlotCall) (contract.SlotAnswer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	queue := activity.GetInfo(ctx).TaskQueue
	if in.Open && d.open[queue] == nil {
		return contract.SlotAnswer{}, errors.New("not yet")
	}
	if in.Close {
		d.open[queue]()
	}
	if in.Task == "" {
		return contract.SlotAnswer{}, nil
	}
	d.calls = append(d.calls, in.Task)
	if d.answer != nil {
		if err := d.answer(in.Task); err != nil {
			return contract.SlotAnswer{}, err
		}
	}
	return contract.SlotAnswer{Value: json.RawMessage("1")}, nil
}

// lease runs f with a slot, and returns its error and the desk once all has ended.
func (d *desk) lease(t *testing.T, f func(ctx workflow.Context) error) error {
	t.Helper()
	d.open = map[string]context.CancelFunc{}
	suite := testsuite.WorkflowTestSuite{}
	suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(20 * time.Second)
	env.RegisterActivityWithOptions(d.hold, activity.RegisterOptions{Name: contract.HoldSlot})
	env.RegisterActivityWithOptions(d.call, activity.RegisterOptions{Name: contract.CallSlot})
	env.RegisterActivityWithOptions(func(context.Context, contract.WatchInput) (bool, error) { return true, nil },
		activity.RegisterOptions{Name: contract.WatchPool})
	env.ExecuteWorkflow(f)
	require.True(t, env.IsWorkflowCompleted())
	return env.GetWorkflowError()
}

// call calls a task and forgets its value.
func call(ctx workflow.Context, s *workflows.Slot, task string) error {
	_, err := workflows.Call[int](ctx, s, task, 0)
	return err
}

// times makes an answer that fails the first n calls of a task.
func times(n int, task string, err error) func(string) error {
	return func(called string) error {
		if n--; called == task && n >= 0 {
			return err
		} else if called != task {
			n++
		}
		return nil
	}
}

// A Rebuild that fails is the error of its call. It runs again before the next one, which
// must not meet a process without what it needs.
func TestLease_ARebuildThatFailedRunsAgain(t *testing.T) {
	d := &desk{}
	lose, fail := times(1, "step", lostFault(gpumux.FaultSlotLost, true)), times(1, "load", lostFault(gpumux.FaultTaskError, false))
	d.answer = func(task string) error { return cmp.Or(lose(task), fail(task)) }
	require.NoError(t, d.lease(t, func(ctx workflow.Context) error {
		o := workflows.LeaseOptions{Rebuild: func(ctx workflow.Context, s *workflows.Slot) error { return call(ctx, s, "load") }}
		return workflows.WithSlot(ctx, o, func(ctx workflow.Context, s *workflows.Slot) error {
			if err := call(ctx, s, "step"); workflows.FaultOf(err).Kind != gpumux.FaultTaskError {
				return fmt.Errorf("the first call: %w", err)
			}
			return call(ctx, s, "step")
		})
	}))
	require.Equal(t, []string{"step", "load", "load", "step"}, d.calls)
}

// A call that loses its slot each time ends after some times, though Rebuild works in
// between: it may be what breaks the devices.
func TestLease_ACallThatAlwaysLosesItsSlotEnds(t *testing.T) {
	d := &desk{answer: times(1000, "step", lostFault(gpumux.FaultDeviceLost, true))}
	err := d.lease(t, func(ctx workflow.Context) error {
		o := workflows.LeaseOptions{Rebuild: func(ctx workflow.Context, s *workflows.Slot) error { return call(ctx, s, "load") }}
		return workflows.WithSlot(ctx, o, func(ctx workflow.Context, s *workflows.Slot) error { return call(ctx, s, "step") })
	})
	require.ErrorContains(t, err, "device_lost")
	require.Equal(t, 6, d.slots)
	require.Empty(t, d.open)
}

// Calls that Rebuild makes without waiting for them end before the call for which it
// runs.
func TestLease_CallsOfARebuildComeFirst(t *testing.T) {
	d := &desk{answer: times(1, "step", lostFault(gpumux.FaultSlotLost, true))}
	require.NoError(t, d.lease(t, func(ctx workflow.Context) error {
		o := workflows.LeaseOptions{Rebuild: func(ctx workflow.Context, s *workflows.Slot) error {
			for i := range 3 {
				workflows.CallAsync[int](ctx, s, fmt.Sprint("load", i), 0)
			}
			return nil
		}}
		return workflows.WithSlot(ctx, o, func(ctx workflow.Context, s *workflows.Slot) error { return call(ctx, s, "step") })
	}))
	require.Equal(t, []string{"step", "load0", "load1", "load2", "step"}, d.calls)
}

// A selector tells which of several calls is done.
func TestLease_CallsInASelector(t *testing.T) {
	d := &desk{}
	var done []string
	require.NoError(t, d.lease(t, func(ctx workflow.Context) error {
		return workflows.WithSlot(ctx, workflows.LeaseOptions{}, func(ctx workflow.Context, s *workflows.Slot) error {
			selector := workflow.NewSelector(ctx)
			for _, task := range []string{"first", "second"} {
				each := workflows.CallAsync[int](ctx, s, task, 0)
				selector.AddFuture(each.Done(), func(workflow.Future) { done = append(done, task) })
			}
			selector.Select(ctx)
			selector.Select(ctx)
			return nil
		})
	}))
	require.Equal(t, []string{"first", "second"}, done)
}

// A slot that a call has found again is the lease's, also when the context of that call
// ends.
func TestLease_OutlivesTheContextOfACall(t *testing.T) {
	d := &desk{answer: times(1, "step", lostFault(gpumux.FaultDeviceLost, true))}
	require.NoError(t, d.lease(t, func(ctx workflow.Context) error {
		o := workflows.LeaseOptions{Rebuild: func(workflow.Context, *workflows.Slot) error { return nil }}
		return workflows.WithSlot(ctx, o, func(ctx workflow.Context, s *workflows.Slot) error {
			for range 3 {
				within, cancel := workflow.WithCancel(ctx)
				if err := call(within, s, "step"); err != nil {
					return err
				}
				cancel()
				if err := workflow.Sleep(ctx, time.Second); err != nil {
					return err
				}
			}
			return nil
		})
	}))
	require.Equal(t, 2, d.slots)
	require.Empty(t, d.open)
}

// A call after the end of its lease is a mistake, and takes no slot again.
func TestLease_ACallAfterItsEnd(t *testing.T) {
	d := &desk{}
	err := d.lease(t, func(ctx workflow.Context) error {
		var left *workflows.Slot
		o := workflows.LeaseOptions{Rebuild: func(workflow.Context, *workflows.Slot) error { return nil }}
		if err := workflows.WithSlot(ctx, o, func(ctx workflow.Context, s *workflows.Slot) error { left = s; return nil }); err != nil {
			return err
		}
		return call(ctx, left, "step")
	})
	require.ErrorContains(t, err, "a call on a slot whose lease has ended")
	require.Equal(t, 1, d.slots)
	require.Empty(t, d.open)
}

// A panic in the function is what the workflow's error says.
func TestLease_APanicIsTold(t *testing.T) {
	d := &desk{}
	err := d.lease(t, func(ctx workflow.Context) error {
		return workflows.WithSlot(ctx, workflows.LeaseOptions{}, func(workflow.Context, *workflows.Slot) error { panic("a mistake of mine") })
	})
	require.ErrorContains(t, err, "a mistake of mine")
}

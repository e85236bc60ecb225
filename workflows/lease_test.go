package workflows_test

import (
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

func lostFault(kind gpumux.Kind, blameless bool) error {
	fault := gpumux.Fault{Kind: kind, Op: "run", Message: "gone", Blameless: blameless}
	return temporal.NewApplicationErrorWithOptions(fault.Error(), string(kind), temporal.ApplicationErrorOptions{NonRetryable: true, Details: []any{fault}})
}

func (d *desk) hold(ctx context.Context, in contract.Lease) (contract.Seat, error) {
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
			return contract.Seat{}, ctx.Err()
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

// A lost process fails one call. A lost device fails all that follow.
func TestLease_ALossIsTheErrorOfItsCall(t *testing.T) {
	for kind, calls := range map[gpumux.Kind]int{gpumux.SlotLost: 3, gpumux.DeviceLost: 1} {
		d := &desk{answer: func(string) error { return lostFault(kind, true) }}
		require.NoError(t, d.lease(t, func(ctx workflow.Context) error {
			return workflows.WithSlot(ctx, workflows.LeaseOptions{}, func(ctx workflow.Context, s *workflows.Slot) error {
				for range 3 {
					if fault := workflows.FaultOf(call(ctx, s, "step")); fault == nil || fault.Kind != kind {
						return fmt.Errorf("the call's fault is %v", fault)
					}
				}
				return nil
			})
		}))
		require.Len(t, d.calls, calls)
		require.Equal(t, 1, d.slots)
		require.Empty(t, d.open)
	}
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

// A call after the end of its lease is a mistake, and takes no slot again.
func TestLease_ACallAfterItsEnd(t *testing.T) {
	d := &desk{}
	err := d.lease(t, func(ctx workflow.Context) error {
		var left *workflows.Slot
		if err := workflows.WithSlot(ctx, workflows.LeaseOptions{}, func(ctx workflow.Context, s *workflows.Slot) error { left = s; return nil }); err != nil {
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

package workflowstest

import (
	"context"
	"encoding/json"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/testsuite"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

func (t *Tasks) registerLeases(env *testsuite.TestWorkflowEnvironment) {
	env.RegisterActivityWithOptions(t.hold, activity.RegisterOptions{Name: contract.HoldSlot})
	env.RegisterActivityWithOptions(t.call, activity.RegisterOptions{Name: contract.CallSlot})
	env.RegisterActivityWithOptions(func(context.Context, contract.WatchInput) (bool, error) { return true, nil },
		activity.RegisterOptions{Name: contract.WatchPool})
}

// ended is closed when the lease with a queue ends.
func (t *Tasks) ended(queue string) chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leases[queue] == nil {
		t.leases[queue] = make(chan struct{})
	}
	return t.leases[queue]
}

// hold stands for gpumux.HoldSlot: there is always a slot.
func (t *Tasks) hold(ctx context.Context, in contract.Lease) (gpumux.Seat, error) {
	select {
	case <-t.ended(in.Queue):
		return gpumux.Seat{}, nil
	case <-ctx.Done():
		return gpumux.Seat{}, ctx.Err()
	}
}

// call stands for gpumux.CallSlot. A handle stays a handle: a stand-in gets what names
// the value.
func (t *Tasks) call(ctx context.Context, in contract.SlotCall) (answer contract.SlotAnswer, err error) {
	answer.Seat = gpumux.Seat{Worker: "test", Host: "test", Slot: "test/0", Device: "CPU"}
	switch {
	case in.Close:
		close(t.ended(activity.GetInfo(ctx).TaskQueue))
	case in.Load != nil:
		answer.Value, err = json.Marshal(in.Load)
	case in.Task != "":
		results, err := t.each(in.Task, []json.RawMessage{in.Item})
		if err != nil {
			return answer, err
		}
		if fault := results[0].Fault; fault != nil {
			return answer, failed(fault)
		}
		answer.Value = results[0].Value
	}
	return answer, err
}

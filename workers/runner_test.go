package workers

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/activities"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/workers/contact"
	"github.com/gpumux/gpumux/workers/metrics"
	"github.com/gpumux/gpumux/workers/sharing"
	"github.com/gpumux/gpumux/workers/slot"
	"github.com/gpumux/gpumux/workers/slot/slottest"
)

// newRunner runs the task t in two slots that are whatever the test says, under a clock of the test's.
func newRunner(now func() time.Duration) (*runner, []*slottest.Slot) {
	p, places, fakes := testPool(2, gpu.CPU)
	for _, pl := range places {
		pl.Model = gpu.CPU
	}
	log, tasks := zap.NewNop(), tasksIn("", "t")
	return &runner{
		share: func(string) sharing.Share { return sharing.None },
		pool:  p, tasks: tasks, halt: context.Background(), log: log,
		contact:   contact.New(nil, now, log),
		allowance: func(string, string) gpumux.Size { return 0 }, metrics: metrics.New(log, "", nil),
		examine: func(context.Context, string, *gpumux.Fault) string { return "" },
	}, fakes
}

// A process that ended while the worker stood still is no fault of its item's.
func TestRunner_ADeathDuringAPauseBlamesNobody(t *testing.T) {
	clock := time.Hour
	r, fakes := newRunner(func() time.Duration { return clock })
	crash := &gpumux.Fault{Kind: gpumux.Crash, Op: "run", Message: "signal SIGKILL"}
	fakes[0].Do = func(_ context.Context, call slot.Call) error {
		require.NoError(t, call.Held())
		clock += 12 * time.Second
		require.ErrorIs(t, call.Held(), slot.ErrLapsed)
		return crash
	}
	err := r.Run(t.Context(), activities.Call{Task: "t"})
	require.ErrorIs(t, err, slot.ErrLapsed)
	require.False(t, errors.As(err, new(*gpumux.Fault)))
	require.Empty(t, r.metrics.Faults)
	require.ErrorIs(t, r.Run(t.Context(), activities.Call{Task: "t"}), slot.ErrLapsed, "nothing begins before the server has answered")

	r, fakes = newRunner(func() time.Duration { return clock })
	fakes[0].Do = func(context.Context, slot.Call) error { return crash }
	require.ErrorIs(t, r.Run(t.Context(), activities.Call{Task: "t"}), crash, "later deaths count")
}

package workers

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/activities"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/pool"
	"github.com/gpumux/gpumux/internal/sharing"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/gputest"
)

// newRunner runs the task t in two slots that are whatever the test says.
func newRunner() (*runner, []*gputest.Slot) {
	p, _, fakes := testPool(2, gpu.CPU)
	log, tasks := zap.NewNop(), tasksIn("", "t")
	share, _ := sharing.Default.Prepare(context.Background(), nil, sharing.Use{Devices: []gpu.Device{{Kind: gpu.KindCPU}}})
	return &runner{
		share: func(string) sharing.Share { return share },
		pool:  p, tasks: tasks, halt: context.Background(), log: log, args: new(argFiles),
		metrics: newMetrics(log, "", nil, nil),
		examine: func(context.Context, string) string { return "" }, crowd: func(string) (string, bool) { return "", false },
	}, fakes
}

// A process that ended while the worker stood still is no fault of its item's.
func TestRunner_ADeathDuringAPauseBlamesNobody(t *testing.T) {
	var clock atomic.Int64
	clock.Store(int64(time.Hour))
	ctx, stop := newContact(func() time.Duration { return time.Duration(clock.Load()) }, zap.NewNop()).Follow(t.Context(), contract.HeartbeatTimeout)
	defer stop()
	r, fakes := newRunner()
	crash := &gpumux.Fault{Kind: gpumux.FaultCrash, Op: "run", Message: "signal SIGKILL"}
	fakes[0].Do = func(_ context.Context, _ launch.Task, call slot.Call) error {
		require.NoError(t, call.Held())
		clock.Add(int64(contract.HeartbeatTimeout))
		require.ErrorIs(t, call.Held(), calls.ErrLapsed)
		return crash
	}
	err := r.Run(ctx, calls.Call{Task: "t"}, &gputest.Work{})
	require.ErrorIs(t, err, calls.ErrLapsed)
	require.False(t, errors.As(err, new(*gpumux.Fault)))
	counted := make(chan prometheus.Metric, 1)
	r.metrics.faults.Collect(counted)
	require.Empty(t, counted)
	require.ErrorIs(t, r.Run(ctx, calls.Call{Task: "t"}, &gputest.Work{}), calls.ErrLapsed, "nothing more begins")

	r, fakes = newRunner()
	fakes[0].Do = func(context.Context, launch.Task, slot.Call) error { return crash }
	require.ErrorIs(t, r.Run(t.Context(), calls.Call{Task: "t"}, &gputest.Work{}), crash, "later deaths count")
}

// A slot is counted as free soon while the last items of its call run, if they are short.
func TestRunner_SaysWhenACallEndsSoon(t *testing.T) {
	for name, test := range map[string]struct {
		items int64
		each  time.Duration
		soon  []int
	}{
		"short items": {5, 100 * time.Millisecond, []int{0, 1, 1, 1, 1}},
		"long items":  {3, 2 * time.Second, []int{0, 0, 0}},
		"one by one":  {3, 800 * time.Millisecond, []int{0, 1, 1}},
		"one item":    {1, time.Millisecond, []int{0}},
		"nobody says": {0, time.Millisecond, []int{0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			r, fakes := newRunner()
			var soon []int
			fakes[0].Do = func(_ context.Context, _ launch.Task, call slot.Call) error {
				for range test.soon {
					call.Work.Done(calls.Done{Busy: test.each})
					soon = append(soon, r.pool.Load().Soon)
				}
				return nil
			}
			require.NoError(t, r.Run(t.Context(), calls.Call{Task: "t", Len: test.items}, &gputest.Work{}))
			require.Equal(t, test.soon, soon)
			require.Zero(t, r.pool.Load().Soon)
			require.Equal(t, 2, r.pool.Load().Free)
		})
	}
}

func TestRunner_WaitsForASlotAsLongAsTheCallDoes(t *testing.T) {
	r, _ := newRunner()
	for range 2 {
		_, err := r.pool.Acquire(t.Context(), pool.Want{Task: "t"})
		require.NoError(t, err)
	}
	require.ErrorIs(t, r.Run(t.Context(), calls.Call{Task: "t", Patience: time.Millisecond}, &gputest.Work{}), activities.ErrBusy)
}

// A slot whose call does not end although it was said to has no further work fetched for
// it.
func TestRunner_ACallThatDoesNotEndHasItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, fakes := newRunner()
		fakes[0].Do = func(_ context.Context, _ launch.Task, call slot.Call) error {
			call.Work.Done(calls.Done{Busy: time.Millisecond})
			require.Equal(t, 1, r.pool.Load().Soon)
			time.Sleep(time.Second)
			require.Zero(t, r.pool.Load().Soon)
			return nil
		}
		require.NoError(t, r.Run(t.Context(), calls.Call{Task: "t", Len: 2}, &gputest.Work{}))
	})
}

// Whoever fills the device is to blame for a lack of its memory, not the item.
func TestRunner_AFullDeviceBlamesNobody(t *testing.T) {
	for name, c := range map[string]struct {
		text                     string
		full                     bool
		kind                     gpumux.FaultKind
		message                  string
		blameless, moves, others bool
	}{
		"full":       {"others hold 22GiB of GPU 0", true, gpumux.FaultDeviceOOM, "out of memory; others hold 22GiB of GPU 0", true, true, true},
		"much":       {"others hold 8GiB of GPU 0", false, gpumux.FaultDeviceOOM, "out of memory; others hold 8GiB of GPU 0", false, true, true},
		"alone":      {"", false, gpumux.FaultDeviceOOM, "out of memory", false, false, true},
		"over by it": {"others hold 22GiB of GPU 0", true, gpumux.FaultBudget, "out of memory", false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, fakes := newRunner()
			asked := false
			r.crowd = func(string) (string, bool) { asked = true; return c.text, c.full }
			fakes[0].Do = func(context.Context, launch.Task, slot.Call) error {
				return &gpumux.Fault{Kind: c.kind, Op: "run", Message: "out of memory"}
			}
			var fault *gpumux.Fault
			require.ErrorAs(t, r.Run(t.Context(), calls.Call{Task: "t"}, &gputest.Work{}), &fault)
			require.Equal(t, c.message, fault.Message)
			require.Equal(t, c.blameless, fault.Blameless)
			require.Equal(t, c.moves, fault.Suspect)
			require.Equal(t, c.others, asked)
		})
	}
}

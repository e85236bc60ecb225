package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers/config"
	"github.com/gpumux/gpumux/workflows"
)

const hardPy = `
import os, signal, time
grown = []
def grow(item): grown.append(item); return [len(grown), os.getpid()]
def kill(pid):
    os.kill(pid, signal.SIGKILL)
    try:
        while True: os.kill(pid, 0); time.sleep(0.01)
    except ProcessLookupError: pass  # the worker has reaped it
def refuse(): raise ValueError("not here")
class Stubborn:
    def __reduce__(self): return refuse, ()
def stubborn(item):
    import gpumux
    return gpumux.keep(Stubborn(), "stubborn")
`

// A process that ends between two calls is told though nothing was kept in it: what
// earlier calls left there is gone.
func TestLease_AProcessThatEndsBetweenCalls(t *testing.T) {
	l := newLeases(t)
	require.NoError(t, os.WriteFile(filepath.Join(l.dir, "hard.py"), []byte(hardPy), 0o644))
	l.offer("cpu", 4)
	l.register("between", func(ctx workflow.Context, rebuild bool) (said []string, err error) {
		o := workflows.LeaseOptions{Ladder: []string{"cpu"}}
		grow := func(ctx workflow.Context, s *workflows.Slot) ([2]int, error) {
			return workflows.Call[[2]int](ctx, s, "hard:grow", 1)
		}
		return said, workflows.WithSlot(ctx, o, func(ctx workflow.Context, other *workflows.Slot) error {
			if rebuild {
				o.Rebuild = func(ctx workflow.Context, s *workflows.Slot) error { _, err := grow(ctx, s); return err }
			}
			return workflows.WithSlot(ctx, o, func(ctx workflow.Context, s *workflows.Slot) error {
				first, err := grow(ctx, s)
				if err != nil {
					return err
				}
				if _, err := workflows.Call[any](ctx, other, "hard:kill", first[1]); err != nil {
					return err
				}
				if err := workflow.Sleep(ctx, time.Second); err != nil { // for the rest of what the worker does at its end
					return err
				}
				for range 2 {
					got, err := grow(ctx, s)
					if fault := workflows.FaultOf(err); fault != nil {
						said = append(said, string(fault.Kind), fault.Message)
					} else {
						said = append(said, fmt.Sprint(got[0]))
					}
				}
				return nil
			})
		})
	})
	l.begin()
	var said []string
	require.NoError(t, l.execute("between", "between", false).Get(t.Context(), &said))
	require.Len(t, said, 3)
	require.Equal(t, "slot_lost", said[0])
	require.Contains(t, said[1], "what earlier calls left in it is gone")
	require.Equal(t, "1", said[2])
	require.NoError(t, l.execute("rebuilt-between", "between", true).Get(t.Context(), &said))
	require.Equal(t, []string{"2", "3"}, said)
}

// A command has no process to stay in, and a lease says so.
func TestLease_OfACommand(t *testing.T) {
	l := newLeases(t)
	l.serve(onCPU(cpuPool{
		Pool: "cpu", Slots: 2, Dir: l.dir, Store: l.store,
		Tasks: map[string]config.Task{"echo": {Command: []string{"cat"}}},
	}))
	l.register("echo", func(ctx workflow.Context) error {
		return workflows.WithSlot(ctx, workflows.LeaseOptions{Ladder: []string{"cpu"}}, func(ctx workflow.Context, s *workflows.Slot) error {
			_, err := workflows.Call[int](ctx, s, "echo", 1)
			return err
		})
	})
	l.begin()
	err := l.execute("echo", "echo").Get(t.Context(), nil)
	require.ErrorContains(t, err, "task echo is a command, which has no process to stay in")
	require.Equal(t, gpumux.FaultBadInput, workflows.FaultOf(err).Kind)
}

// A lease whose time ends in its last call ends then, without waiting for an answer that
// nobody can give any more.
func TestLease_ItsTimeEndsInItsLastCall(t *testing.T) {
	l := newLeases(t)
	l.offer("cpu", 2)
	l.register("last", func(ctx workflow.Context) error {
		o := workflows.LeaseOptions{Ladder: []string{"cpu"}, TTL: 2 * time.Second} // when a heartbeat is due, too
		return workflows.WithSlot(ctx, o, func(ctx workflow.Context, s *workflows.Slot) error {
			_, err := workflows.Call[any](ctx, s, "model:sleep", 600)
			return err
		})
	})
	l.begin()
	for i := range 5 {
		run := l.execute(fmt.Sprint("last-", i), "last")
		require.ErrorContains(t, run.Get(t.Context(), nil), "the time to live of the lease, 2s, is over")
		iter := l.client.GetWorkflowHistory(t.Context(), run.GetID(), run.GetRunID(), false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for iter.HasNext() {
			event, err := iter.Next()
			require.NoError(t, err)
			require.NotEqual(t, enums.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT, event.GetEventType())
		}
	}
}

// A value that cannot be made again elsewhere fails its move, and nothing of it stays in
// the store.
func TestLease_AMoveThatFails(t *testing.T) {
	l := newLeases(t)
	require.NoError(t, os.WriteFile(filepath.Join(l.dir, "hard.py"), []byte(hardPy), 0o644))
	l.offer("cpu", 4)
	l.register("move", func(ctx workflow.Context) error {
		o := workflows.LeaseOptions{Ladder: []string{"cpu"}}
		return workflows.WithSlot(ctx, o, func(ctx workflow.Context, a *workflows.Slot) error {
			return workflows.WithSlot(ctx, o, func(ctx workflow.Context, b *workflows.Slot) error {
				kept, err := workflows.Call[gpumux.Resident](ctx, a, "hard:stubborn", 1)
				if err == nil {
					_, err = workflows.Move(ctx, kept, a, b)
				}
				return err
			})
		})
	})
	l.begin()
	require.ErrorContains(t, l.execute("move", "move").Get(t.Context(), nil), "not here")
	left, err := filepath.Glob(filepath.Join(l.dir, "store", "leases", "*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers"
	"github.com/gpumux/gpumux/workflows"
)

const modelPy = `
import gpumux, os, signal, time

class Weights:
    shape, dtype, nbytes = (1000,), "float32", 4000
    def __init__(self, seed): self.seed = seed

def load(seed): return gpumux.keep(Weights(seed), "weights")
def infer(item): return {"value": item["model"].seed * item["x"], "pid": os.getpid()}
def pid(item): return os.getpid()
def task(item): return gpumux.slot().task
def gate(path):
    while not os.path.exists(path): time.sleep(0.01)
    return path
def sleep(seconds):
    open(os.path.join(os.path.dirname(__file__), "sleeps"), "a").write("x")
    time.sleep(seconds)
def once(item):
    # kills the process at its first call only
    marker = os.path.join(os.path.dirname(__file__), "killed")
    if not os.path.exists(marker):
        open(marker, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return item["model"].seed
`

// leases is a site whose workers offer slots for leases, and a service with workflows
// that take them.
type leases struct {
	*site
	service worker.Worker
}

func newLeases(t *testing.T) *leases {
	t.Parallel()
	s := newSite(t)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "model.py"), []byte(modelPy), 0o644))
	l := &leases{site: s, service: worker.New(s.client, "service", worker.Options{})}
	return l
}

// offer starts a worker with slots that serves the functions of model.py.
func (l *leases) offer(pool string, slots int) *workers.Worker {
	return l.serve(onCPU(cpuPool{
		Pool: pool, Slots: slots, TasksDir: l.dir, Dir: l.dir, Store: l.store,
	}))
}

// register makes f a workflow of the service.
func (l *leases) register(name string, f any) {
	l.service.RegisterWorkflowWithOptions(f, workflow.RegisterOptions{Name: name})
}

func (l *leases) begin() {
	require.NoError(l.t, l.service.Start())
	l.t.Cleanup(l.service.Stop)
}

func (l *leases) execute(id, name string, args ...any) client.WorkflowRun {
	l.t.Helper()
	run, err := l.client.ExecuteWorkflow(l.t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: "service"}, name, args...)
	require.NoError(l.t, err)
	return run
}

type inferred struct {
	Value, PID int
}

// products makes calls in order on a slot, of which all but the first do not wait for
// those before.
func products(ctx workflow.Context, seed int) (got []inferred, err error) {
	err = workflows.WithSlot(ctx, workflows.LeaseOptions{Ladder: []string{"cpu"}}, func(ctx workflow.Context, s *workflows.Slot) error {
		model, err := workflows.Call[gpumux.Resident](ctx, s, "model:load", seed)
		if err != nil {
			return err
		}
		if s.Seat().Slot == "" || model.Slot != s.Seat().Slot || model.Bytes != 4000 {
			return fmt.Errorf("the seat is %v, the handle %v", s.Seat(), model)
		}
		var futures []workflows.Future[inferred]
		for x := range 5 {
			futures = append(futures, workflows.CallAsync[inferred](ctx, s, "model:infer", map[string]any{"model": model, "x": x}))
		}
		for _, f := range futures {
			each, err := f.Get(ctx)
			if err != nil {
				return err
			}
			got = append(got, each)
		}
		if err := s.Drop(ctx, model); err != nil {
			return err
		}
		_, err = workflows.Call[inferred](ctx, s, "model:infer", map[string]any{"model": model, "x": 1})
		if fault := workflows.FaultOf(err); fault == nil || fault.Kind != gpumux.FaultTaskError {
			return fmt.Errorf("a call with what was dropped: %w", err)
		}
		return nil
	})
	return got, err
}

// mortal has a call that kills its process, and others behind it.
func mortal(ctx workflow.Context, rebuild bool) (kinds []string, err error) {
	load := func(ctx workflow.Context, s *workflows.Slot) error {
		_, err := workflows.Call[gpumux.Resident](ctx, s, "model:load", 7)
		return err
	}
	o := workflows.LeaseOptions{Ladder: []string{"cpu"}}
	if rebuild {
		o.Rebuild = load
	}
	err = workflows.WithSlot(ctx, o, func(ctx workflow.Context, s *workflows.Slot) error {
		model, err := workflows.Call[gpumux.Resident](ctx, s, "model:load", 7)
		if err != nil {
			return err
		}
		for range 3 {
			seed, err := workflows.Call[int](ctx, s, "model:once", map[string]any{"model": model})
			if fault := workflows.FaultOf(err); fault != nil {
				kinds = append(kinds, string(fault.Kind))
			} else {
				kinds = append(kinds, fmt.Sprint(seed))
			}
		}
		return nil
	})
	return kinds, err
}

// Calls of a lease share a process and what it keeps, in the order in which they were
// made, waited for or not.
func TestLease_CallsInOrderOnOneSlot(t *testing.T) {
	l := newLeases(t)
	l.offer("cpu", 2)
	l.register("products", products)
	l.begin()
	var got []inferred
	run := l.execute("products", "products", 7)
	require.NoError(t, run.Get(t.Context(), &got))
	l.keep(run)
	require.Len(t, got, 5)
	for x, each := range got {
		require.Equal(t, 7*x, each.Value)
		require.Equal(t, got[0].PID, each.PID)
	}
}

// A pool that nobody offers leases of is passed over, and after the last one the workflow
// learns why.
func TestLease_NobodyOffersOne(t *testing.T) {
	l := newLeases(t)
	l.offer("cpu", 1) // one slot leases none
	l.offer("big", 2)
	l.register("where", func(ctx workflow.Context, ladder []string) (slot string, err error) {
		o := workflows.LeaseOptions{Ladder: ladder, Patience: 5 * time.Second}
		err = workflows.WithSlot(ctx, o, func(ctx workflow.Context, s *workflows.Slot) error {
			slot = s.Seat().Slot
			return nil
		})
		return slot, err
	})
	l.begin()
	var slot string
	require.NoError(t, l.execute("ladder", "where", []string{"cpu", "big"}).Get(t.Context(), &slot))
	require.Contains(t, slot, "big/")
	err := l.execute("alone", "where", []string{"cpu"}).Get(t.Context(), nil)
	require.ErrorContains(t, err, "no worker has offered a lease of pool cpu for 5s")
	require.Equal(t, gpumux.FaultSlotLost, workflows.FaultOf(err).Kind)
}

// A lease ends with its time to live, in the middle of a call too, and its slot is free
// again.
func TestLease_ItsTimeIsLimited(t *testing.T) {
	l := newLeases(t)
	l.offer("cpu", 2)
	l.register("long", func(ctx workflow.Context) (string, error) {
		o := workflows.LeaseOptions{Ladder: []string{"cpu"}, TTL: 2 * time.Second, Rebuild: func(workflow.Context, *workflows.Slot) error {
			return errors.New("a lease whose time is over is not built anew")
		}}
		err := workflows.WithSlot(ctx, o, func(ctx workflow.Context, s *workflows.Slot) error {
			_, err := workflows.Call[any](ctx, s, "model:sleep", 600)
			_, again := workflows.Call[any](ctx, s, "model:pid", 1)
			return errors.Join(err, again)
		})
		return fmt.Sprint(err), nil
	})
	l.begin()
	var said string
	require.NoError(t, l.execute("long", "long").Get(t.Context(), &said))
	require.Contains(t, said, "the time to live of the lease, 2s, is over")
	require.NoError(t, l.execute("long-again", "long").Get(t.Context(), &said), "the slot is free again")
}

// What a process kept goes with it: the call that killed it and the next one say so, and
// Rebuild makes it anew.
func TestLease_ADeadProcess(t *testing.T) {
	l := newLeases(t)
	l.offer("cpu", 2)
	l.register("dead", mortal)
	l.begin()
	var kinds []string
	require.NoError(t, l.execute("dead", "dead", false).Get(t.Context(), &kinds))
	require.Equal(t, []string{"crash", "slot_lost", "task_error"}, kinds)
	require.NoError(t, os.Remove(filepath.Join(l.dir, "killed")))
	run := l.execute("rebuilt", "dead", true)
	require.NoError(t, run.Get(t.Context(), &kinds))
	require.Equal(t, []string{"crash", "7", "7"}, kinds)
	l.keep(run)
}

// A value goes from one slot to another through the store, and a handle of another slot
// is refused with both places named.
func TestLease_MovesBetweenSlots(t *testing.T) {
	l := newLeases(t)
	l.offer("cpu", 4)
	l.register("move", func(ctx workflow.Context) (said string, err error) {
		o := workflows.LeaseOptions{Ladder: []string{"cpu"}}
		err = workflows.WithSlot(ctx, o, func(ctx workflow.Context, a *workflows.Slot) error {
			return workflows.WithSlot(ctx, o, func(ctx workflow.Context, b *workflows.Slot) error {
				model, err := workflows.Call[gpumux.Resident](ctx, a, "model:load", 7)
				if err != nil {
					return err
				}
				if _, err = workflows.Call[int](ctx, b, "model:pid", 1); err != nil {
					return err
				}
				_, err = workflows.Call[inferred](ctx, b, "model:infer", map[string]any{"model": model, "x": 2})
				said = fmt.Sprint(err)
				moved, err := workflows.Move(ctx, model, a, b)
				if err != nil {
					return err
				}
				there, err := workflows.Call[inferred](ctx, b, "model:infer", map[string]any{"model": moved, "x": 2})
				if err != nil {
					return err
				}
				here, err := workflows.Call[inferred](ctx, a, "model:infer", map[string]any{"model": model, "x": 2})
				if err == nil && (there.Value != 14 || here.Value != 14 || here.PID == there.PID) {
					err = fmt.Errorf("%v there, %v here", there, here)
				}
				return err
			})
		})
		return said, err
	})
	l.begin()
	var said string
	require.NoError(t, l.execute("move", "move").Get(t.Context(), &said))
	require.Contains(t, said, "workflows.Move")
	left, err := filepath.Glob(filepath.Join(l.dir, "store", "leases", "*"))
	require.NoError(t, err)
	require.Empty(t, left, "nothing stays in the store")
}

// A workflow that is cancelled, or terminated, gives its slot back.
func TestLease_EndsWithItsWorkflow(t *testing.T) {
	l := newLeases(t)
	l.offer("cpu", 2)
	l.register("hold", func(ctx workflow.Context, seconds int) error {
		return workflows.WithSlot(ctx, workflows.LeaseOptions{Ladder: []string{"cpu"}}, func(ctx workflow.Context, s *workflows.Slot) error {
			_, err := workflows.Call[any](ctx, s, "model:sleep", seconds)
			return err
		})
	})
	l.begin()
	sleeps := func() int {
		text, _ := os.ReadFile(filepath.Join(l.dir, "sleeps"))
		return len(text)
	}
	for i, end := range []func(id string) error{
		func(id string) error { return l.client.CancelWorkflow(t.Context(), id, "") },
		func(id string) error { return l.client.TerminateWorkflow(t.Context(), id, "", "enough") },
	} {
		run := l.execute(fmt.Sprint("hold-", i), "hold", 600)
		require.Eventually(t, func() bool { return sleeps() == i+1 }, time.Minute, 10*time.Millisecond)
		require.NoError(t, end(run.GetID()))
		err := run.Get(t.Context(), nil)
		require.Error(t, err)
		require.Equal(t, i == 0, temporal.IsCanceledError(errors.Unwrap(err)), "%v", err)
	}
	require.NoError(t, l.execute("next", "hold", 0).Get(t.Context(), nil), "the one slot that may be leased is free")
}

// Workflows with leases that a released version has begun must still replay. Written like
// those of maps, see package workflows.
func TestLease_RecordedHistoriesReplay(t *testing.T) {
	for name, f := range map[string]any{"products": products, "dead": mortal} {
		file := map[string]string{"products": "Lease_CallsInOrderOnOneSlot", "dead": "Lease_ADeadProcess"}[name]
		replayer := worker.NewWorkflowReplayer()
		replayer.RegisterWorkflowWithOptions(f, workflow.RegisterOptions{Name: name})
		require.NoError(t, replayer.ReplayWorkflowHistoryFromJSONFile(nil, filepath.Join("../../workflows/testdata", file+".json")))
	}
}

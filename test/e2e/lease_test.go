package e2e

import (
	"context"
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
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/workers"
	"github.com/gpumux/gpumux/workflows"
)

const modelPy = `
import gpumux, os, signal, time

class Weights:
    shape, dtype, nbytes = (1000,), "float32", 4000
    def __init__(self, seed): self.seed = seed
def refuse(): raise ValueError("not here")
class Stubborn:
    def __reduce__(self): return refuse, ()

def load(seed): return gpumux.keep(Weights(seed), "weights")
def stubborn(item): return gpumux.keep(Stubborn(), "stubborn")
def infer(item): return {"value": item["model"].seed * item["x"], "pid": os.getpid()}
def pid(item): return os.getpid()
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
	return &leases{s, worker.New(s.client, "service", worker.Options{})}
}

// offer starts a worker with slots that serves the functions of model.py.
func (l *leases) offer(pool string, slots int) *workers.Worker {
	l.t.Helper()
	w, err := workers.New(onCPU(cpuPool{Pool: pool, Slots: slots, TasksDir: l.dir, Dir: l.dir, Store: l.store}),
		workers.Options{Client: l.client, Dedicated: true, StopTimeout: 20 * time.Second, Grace: time.Second})
	require.NoError(l.t, err)
	serve(l.t, w)
	return w
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

// sleeps counts the calls of sleep that have begun.
func (l *leases) sleeps() int {
	text, _ := os.ReadFile(filepath.Join(l.dir, "sleeps"))
	return len(text)
}

// moved is empty: what moves between slots does not stay in the store.
func (l *leases) moved() []string {
	left, err := filepath.Glob(filepath.Join(l.dir, "store", "leases", "*"))
	require.NoError(l.t, err)
	return left
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

// long has a call that outlasts the lease, and one behind it.
func long(ctx workflow.Context) (string, error) {
	o := workflows.LeaseOptions{Ladder: []string{"one"}, TTL: 2 * time.Second, Rebuild: func(workflow.Context, *workflows.Slot) error {
		return errors.New("a lease whose time is over is not built anew")
	}}
	err := workflows.WithSlot(ctx, o, func(ctx workflow.Context, s *workflows.Slot) error {
		_, err := workflows.Call[any](ctx, s, "model:sleep", 600)
		_, again := workflows.Call[any](ctx, s, "model:pid", 1)
		return errors.Join(err, again)
	})
	return fmt.Sprint(err), nil
}

// moves moves a value between two slots, and tries to use it where it is not and to move
// one that cannot be made again.
func moves(ctx workflow.Context) (answers []string, err error) {
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
			_, elsewhere := workflows.Call[inferred](ctx, b, "model:infer", map[string]any{"model": model, "x": 2})
			moved, err := workflows.Move(ctx, model, a, b)
			if err != nil {
				return err
			}
			onTarget, err := workflows.Call[inferred](ctx, b, "model:infer", map[string]any{"model": moved, "x": 2})
			if err != nil {
				return err
			}
			onSource, err := workflows.Call[inferred](ctx, a, "model:infer", map[string]any{"model": model, "x": 2})
			if err == nil && (onTarget.Value != 14 || onSource.Value != 14 || onSource.PID == onTarget.PID) {
				err = fmt.Errorf("%v there, %v here", onTarget, onSource)
			}
			if err != nil {
				return err
			}
			stubborn, err := workflows.Call[gpumux.Resident](ctx, a, "model:stubborn", 1)
			if err != nil {
				return err
			}
			_, failed := workflows.Move(ctx, stubborn, a, b)
			answers = []string{fmt.Sprint(elsewhere), fmt.Sprint(failed)}
			return nil
		})
	})
	return answers, err
}

// many has more leases that nobody serves than the server takes activities under way,
// beside a lease and a map.
func many(ctx workflow.Context) error {
	within, cancel := workflow.WithCancel(ctx)
	all, served := workflow.NewWaitGroup(ctx), error(nil)
	for range 700 {
		all.Add(1)
		workflow.Go(within, func(ctx workflow.Context) {
			defer all.Done()
			o := workflows.LeaseOptions{Ladder: []string{"nobody"}, Patience: time.Hour}
			if err := workflows.WithSlot(ctx, o, func(workflow.Context, *workflows.Slot) error { return nil }); !temporal.IsCanceledError(err) {
				served = fmt.Errorf("a lease that nobody serves: %w", err)
			}
		})
	}
	if err := workflow.Sleep(ctx, time.Millisecond); err != nil { // they ask
		return err
	}
	err := workflows.WithSlot(ctx, workflows.LeaseOptions{Ladder: []string{"cpu"}}, func(ctx workflow.Context, s *workflows.Slot) error {
		if _, err := workflows.Call[int](ctx, s, "model:pid", nil); err != nil {
			return err
		}
		_, err := workflows.Map[int, int](ctx, gpumux.MapInput{Task: "model:pid", Ladder: []string{"cpu"}}, []int{0, 1, 2})
		return err
	})
	cancel()
	all.Wait(ctx)
	return errors.Join(err, served)
}

// hold calls sleep on a slot of a pool, and then pid.
func hold(ctx workflow.Context, ladder []string, seconds int) (answers []string, err error) {
	o := workflows.LeaseOptions{Ladder: ladder, Patience: 4 * time.Second}
	err = workflows.WithSlot(ctx, o, func(ctx workflow.Context, s *workflows.Slot) error {
		_, first := workflows.Call[any](ctx, s, "model:sleep", seconds)
		_, second := workflows.Call[any](ctx, s, "model:pid", 1)
		answers = []string{s.Seat().Slot, fmt.Sprint(first), fmt.Sprint(second)}
		return ctx.Err()
	})
	return answers, err
}

// TestLease_Kinds has what a workflow does with leases, one after the other on the same
// workers. With -record two histories become those that are replayed below.
func TestLease_Kinds(t *testing.T) {
	l := newLeases(t)
	l.offer("cpu", 4)
	l.offer("one", 2) // of which leases get one
	for name, f := range map[string]any{"products": products, "dead": mortal, "long": long, "move": moves, "many": many, "hold": hold} {
		l.register(name, f)
	}
	l.begin()
	for name, test := range map[string]func(*leases){
		"CallsInOrderOnOneSlot": callsInOrder, "ADeadProcess": deadProcess, "ItsTimeIsLimited": limitedTime, "MovesBetweenSlots": movesBetweenSlots,
		"EndsWithItsWorkflow": endsWithWorkflow, "HundredsWaitForTheirTurn": hundreds, "NobodyOffersOne": nobodyOffers, "AWorkerThatStops": stoppingWorker,
	} {
		t.Run(name, func(t *testing.T) {
			s := *l.site
			s.t = t
			test(&leases{&s, l.service})
		})
	}
}

// Calls of a lease share a process and what it keeps, in the order in which they were
// made, waited for or not.
func callsInOrder(l *leases) {
	var got []inferred
	run := l.execute("products", "products", 7)
	require.NoError(l.t, run.Get(l.t.Context(), &got))
	l.keep(run)
	require.Len(l.t, got, 5)
	for x, each := range got {
		require.Equal(l.t, 7*x, each.Value)
		require.Equal(l.t, got[0].PID, each.PID)
	}
}

// What a process kept goes with it: the call that killed it and the next one say so, and
// Rebuild makes it anew.
func deadProcess(l *leases) {
	var kinds []string
	require.NoError(l.t, l.execute("dead", "dead", false).Get(l.t.Context(), &kinds))
	require.Equal(l.t, []string{"crash", "slot_lost", "task_error"}, kinds)
	require.NoError(l.t, os.Remove(filepath.Join(l.dir, "killed")))
	run := l.execute("rebuilt", "dead", true)
	require.NoError(l.t, run.Get(l.t.Context(), &kinds))
	require.Equal(l.t, []string{"crash", "7", "7"}, kinds)
	l.keep(run)
}

// A lease ends with its time to live, in the middle of a call too, and its slot is free
// again.
func limitedTime(l *leases) {
	for _, id := range []string{"long", "long-again"} {
		var answers string
		require.NoError(l.t, l.execute(id, "long").Get(l.t.Context(), &answers))
		require.Contains(l.t, answers, "the time to live of the lease, 2s, is over")
	}
}

// A value goes from one slot to another through the store, and a handle of another slot
// is refused with both places named. One that cannot be made again fails its move.
func movesBetweenSlots(l *leases) {
	var answers []string
	require.NoError(l.t, l.execute("move", "move").Get(l.t.Context(), &answers))
	require.Contains(l.t, answers[0], "workflows.Move")
	require.Contains(l.t, answers[1], "not here")
	require.Empty(l.t, l.moved())
}

// A workflow that is cancelled, or terminated, gives its slot back.
func endsWithWorkflow(l *leases) {
	for _, end := range []func(id string) error{
		func(id string) error { return l.client.CancelWorkflow(l.t.Context(), id, "") },
		func(id string) error { return l.client.TerminateWorkflow(l.t.Context(), id, "", "enough") },
	} {
		before := l.sleeps()
		run := l.execute("hold", "hold", []string{"one"}, 600)
		rig.Wait(l.t, func() bool { return l.sleeps() > before }, time.Minute, 10*time.Millisecond)
		require.NoError(l.t, end(run.GetID()))
		require.Error(l.t, run.Get(l.t.Context(), nil))
	}
	require.NoError(l.t, l.execute("next", "hold", []string{"one"}, 0).Get(l.t.Context(), nil), "the one slot that may be leased is free")
}

// The server never completes a workflow task with more than 2,000 activities under way,
// and a lease that waits for its slot has three. So leases wait for their turn to ask.
func hundreds(l *leases) {
	ctx, cancel := context.WithTimeout(l.t.Context(), 5*time.Minute)
	defer cancel()
	require.NoError(l.t, l.execute("many", "many").Get(ctx, nil))
}

// A pool that nobody offers leases of is passed over, and after the last one the workflow
// learns why.
func nobodyOffers(l *leases) {
	var answers []string
	require.NoError(l.t, l.execute("ladder", "hold", []string{"offersnone", "cpu"}, 0).Get(l.t.Context(), &answers))
	require.Contains(l.t, answers[0], "cpu/")
	err := l.execute("alone", "hold", []string{"offersnone"}, 0).Get(l.t.Context(), nil)
	require.ErrorContains(l.t, err, "no worker has offered a lease of pool offersnone for 4s")
	require.Equal(l.t, gpumux.FaultSlotLost, workflows.FaultOf(err).Kind)
}

// A worker that stops lets the call that runs go on to its end, and its value counts. The
// next one learns why the slot is lost.
func stoppingWorker(l *leases) {
	w := l.offer("stops", 2)
	before := l.sleeps()
	run := l.execute("stops", "hold", []string{"stops"}, 3)
	rig.Wait(l.t, func() bool { return l.sleeps() > before }, time.Minute, 10*time.Millisecond)
	require.NoError(l.t, w.Stop(l.t.Context()))
	var answers []string
	require.NoError(l.t, run.Get(l.t.Context(), &answers))
	require.Equal(l.t, "<nil>", answers[1])
	require.Contains(l.t, answers[2], "slot_lost")
	require.Contains(l.t, answers[2], "the worker that held the slot stops")
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

package slot_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/slot"
)

// leased is a slot with a folder of tasks that keep values.
type leased struct {
	*testing.T
	*slot.Slot
	dir string
}

func newLeased(t *testing.T) *leased {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.py"), []byte(`import os
import gpumux
class Weights:
    shape, dtype, nbytes = (4, 4), "float32", 64
    def __init__(self, seed): self.seed = seed
def load(seed): return gpumux.keep(Weights(seed), "weights")
def infer(item): return [item["model"].seed * item["x"], os.getpid()]
def die(item): os._exit(3)
def raises(item): raise ValueError("no")
`), 0o644))
	return &leased{t, newSlot(t), dir}
}

func (l *leased) call(lease, function string, item any) (string, error) {
	l.Helper()
	got, err := run(l.T, l.Slot, launch.Task{Name: "model:" + function, Python: "model.py:" + function, Dir: l.dir}, slot.Call{Call: calls.Call{Lease: lease, Mode: gpumux.ModePersistent}, Work: work(item)})
	if err != nil || len(got) == 0 {
		return "", err
	}
	if got[0].Fault != nil {
		return "", got[0].Fault
	}
	return string(got[0].Value), nil
}

// The calls of a lease share a process, whatever functions they name, and a later one
// gets what an earlier one kept.
func TestLease_CallsShareWhatTheyKeep(t *testing.T) {
	l := newLeased(t)
	handle, err := l.call("a", "load", 7)
	require.NoError(t, err)
	require.Contains(t, handle, `"shape":[4,4]`)
	require.EqualValues(t, 64, l.Stats().ResidentBytes)

	item := map[string]any{"model": json.RawMessage(handle), "x": 6}
	first, err := l.call("a", "infer", item)
	require.NoError(t, err)
	require.Contains(t, first, "[42,")
	_, err = l.call("a", "raises", 1)
	require.Error(t, err, "an exception ends the call alone")
	again, err := l.call("a", "infer", item)
	require.NoError(t, err)
	require.Equal(t, first, again, "the same process")
	require.EqualValues(t, 1, l.Stats().Processes)

	_, err = l.call("", "infer", item)
	require.Equal(t, gpumux.FaultTaskError, fault(t, err).Kind)
	require.Contains(t, err.Error(), "this call to none")
	require.EqualValues(t, 2, l.Stats().Processes, "nobody else gets the process of a lease")
	require.Zero(t, l.Stats().Residents)
	_, err = l.call("", "load", 7)
	require.ErrorContains(t, err, "gpumux.keep needs a lease")
}

// What lay in a process that died is gone: the call that needs it says so.
func TestLease_AHandleOfADeadProcessIsAClearFault(t *testing.T) {
	l := newLeased(t)
	handle, err := l.call("a", "load", 7)
	require.NoError(t, err)
	_, err = l.call("a", "die", 1)
	require.Equal(t, gpumux.FaultCrash, fault(t, err).Kind)
	require.Zero(t, l.Stats().Residents)
	_, err = l.call("a", "infer", map[string]any{"model": json.RawMessage(handle), "x": 6})
	require.ErrorContains(t, err, "gpumux.process.handle.HandleError: the resident 'weights'")
	require.ErrorContains(t, err, "has ended and its residents with it")

	_, err = l.call("a", "load", 8)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(l.PID(), syscall.SIGKILL))
	require.Eventually(t, func() bool { return l.State() == slot.Vacant }, 20*time.Second, 5*time.Millisecond)
	_, err = l.call("a", "infer", map[string]any{"model": json.RawMessage(handle), "x": 6})
	require.ErrorContains(t, err, "has ended and its residents with it")
}

// A call that builds on a process does not run in another one.
func TestLease_TheProcessThatACallNeeds(t *testing.T) {
	l := newLeased(t)
	_, err := l.call("a", "load", 7)
	require.NoError(t, err)
	task := launch.Task{Name: "model:load", Python: "model.py:load", Dir: l.dir}
	call := slot.Call{Call: calls.Call{Lease: "a", Mode: gpumux.ModePersistent, Process: l.PID()}, Work: work(1)}
	_, err = run(t, l.Slot, task, call)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(l.PID(), syscall.SIGKILL))
	require.Eventually(t, func() bool { return l.State() == slot.Vacant }, 20*time.Second, 5*time.Millisecond)
	_, err = run(t, l.Slot, task, call)
	require.ErrorIs(t, err, calls.ErrGone)
	require.EqualValues(t, 1, l.Stats().Processes)
}

// A process serves functions of one environment; another one would need another process.
func TestLease_TasksOfOneProcess(t *testing.T) {
	l := newLeased(t)
	_, err := l.call("a", "load", 7)
	require.NoError(t, err)
	_, err = run(t, l.Slot, launch.Task{Name: "other", Python: "model.py:load", Dir: l.dir, Env: map[string]string{"A": "1"}}, slot.Call{Call: calls.Call{Lease: "a", Mode: gpumux.ModePersistent}, Work: work(1)})
	f := fault(t, err)
	require.Equal(t, gpumux.FaultBadInput, f.Kind)
	require.Contains(t, f.Message, "runs task model:load, and task other needs another process")
	_, err = l.call("a", "nothing", 7)
	require.ErrorContains(t, err, "model.py has no function nothing")
	require.EqualValues(t, 1, l.Stats().Residents, "both cost nothing")
}

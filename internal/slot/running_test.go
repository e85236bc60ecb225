package slot_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/rig"
)

const steps = `
import gpumux, os, time
def step(x):
    if x == 0: return x
    gpumux.progress({"item": x, "text": "é" * (10 if x == 2 else 500)})
    while not os.path.exists(f"open{x}"): time.sleep(0.01)
    return x
`

// A slot says which item it runs, since when, and what the item reported last.
func TestSlot_SaysWhatRuns(t *testing.T) {
	s, dir := newSlot(t), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "steps.py"), []byte(steps), 0o644))
	require.Nil(t, s.Stats().Running)
	ended := make(chan error, 1)
	go func() {
		ended <- s.Run(t.Context(), launch.Task{Name: "step", Python: "steps.py:step", Dir: dir}, slot.Call{Work: work(0, 0, 2, 3)})
	}()
	for _, index := range []int64{2, 3} {
		var running slot.Running
		require.Eventually(t, func() bool {
			if r := s.Stats().Running; r != nil {
				running = *r
			}
			return running.Index == index && running.Progress != ""
		}, time.Minute, time.Millisecond)
		require.WithinRange(t, running.Began, time.Now().Add(-time.Minute), time.Now())
		if index == 2 {
			require.Equal(t, `{"item":2,"text":"éééééééééé"}`, running.Progress)
		} else {
			require.True(t, strings.HasPrefix(running.Progress, `{"item":3`) && strings.HasSuffix(running.Progress, "é…"), running.Progress)
			require.LessOrEqual(t, len(running.Progress), 200)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, "open"+string(rune('0'+index))), nil, 0o644))
	}
	require.NoError(t, <-ended)
	require.Nil(t, s.Stats().Running)
}

// A start has the limit of its task rather than the slot's, says since when it goes on,
// and where it was when its time was over.
func TestSlot_SaysWhatStarts(t *testing.T) {
	f := newForge(t, `
print("loading the weights", flush=True)
open(os.environ["DIR"] + "/begun", "w").close()
while not os.path.exists(os.environ["DIR"] + "/gate"): time.sleep(0.01)
def item(x): return x
`)
	for _, mode := range []gpumux.Mode{gpumux.ModePersistent, gpumux.ModeFresh} {
		s := f.slot("cpu/0", func(o *slot.Options) { o.StartLimit = time.Millisecond })
		require.Nil(t, s.Stats().Starting)
		task := f.task("item")
		task.Mode, task.StartLimit = mode, time.Minute
		ended := make(chan error, 1)
		go func() {
			ended <- s.Run(t.Context(), task, slot.Call{Call: calls.Call{Mode: mode}, Work: work(0)})
		}()
		rig.Wait(t, func() bool { _, err := os.Stat(filepath.Join(f.dir, "begun")); return err == nil }, time.Minute, time.Millisecond)
		starting := s.Stats().Starting
		require.NotNil(t, starting)
		require.Equal(t, "item", starting.Task)
		require.WithinRange(t, starting.Began, time.Now().Add(-time.Minute), time.Now())
		require.NoError(t, os.WriteFile(filepath.Join(f.dir, "gate"), nil, 0o644))
		require.NoError(t, <-ended)
		require.Nil(t, s.Stats().Starting)
		require.NoError(t, os.Remove(filepath.Join(f.dir, "gate")))
		require.NoError(t, os.Remove(filepath.Join(f.dir, "begun")))
	}
}

func TestSlot_AStartThatTakesTooLong(t *testing.T) {
	f := newForge(t, `
print("loading the weights", flush=True)
while True: time.sleep(0.01)
def item(x): return x
`)
	task := f.task("item")
	task.Mode, task.StartLimit = gpumux.ModePersistent, 3*time.Second
	got := fault(t, f.slot("cpu/0", nil).Run(t.Context(), task, slot.Call{Call: calls.Call{Mode: task.Mode}, Work: work(0)}))
	require.Equal(t, gpumux.FaultTimeout, got.Kind)
	require.Equal(t, "start", got.Op)
	require.Equal(t, "the task process was not ready after 3s", got.Message)
	require.Contains(t, got.Hint, "raise start: of the task in the worker's file, or --start-timeout with --local")
	require.Contains(t, got.Tail, "loading the weights")
	require.Contains(t, got.Traceback, "tasks.py")
}

package slot_test

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/rig"
)

func TestSlot_EndlessOutputCostsNoMemory(t *testing.T) {
	t.Parallel()
	s := newStand(t, gpumux.ModePersistent)
	_, err := s.run(s.task("flood"), slot.Call{Call: calls.Call{Timeout: 2 * time.Second}, Work: work(0, 1)})
	f := fault(t, err)
	require.Equal(t, gpumux.FaultTimeout, f.Kind)
	require.LessOrEqual(t, len(f.Tail), 16<<10)
	require.Contains(t, f.Tail, "endless endless")
	s.works()
}

func TestSlot_ACommandsResultMustBeUTF8(t *testing.T) {
	t.Parallel()
	s := newStand(t, gpumux.ModeFresh)
	task := launch.Task{Name: "c", Command: []string{"printf", `"\377"`}}
	got, err := s.run(task, slot.Call{Work: work(0)})
	require.NoError(t, err)
	require.NotNil(t, got[0].Fault, "%q", got[0].Value)
	require.Contains(t, got[0].Fault.Message, "no JSON value")
	task.Text = true
	got, err = s.run(task, slot.Call{Work: work(0)})
	require.NoError(t, err)
	require.NotNil(t, got[0].Fault, "%q", got[0].Value)
	require.Contains(t, got[0].Fault.Message, `bytes that are not UTF-8 text to standard output: "\"\xff\""`)
}

func TestSlot_AHangTellsItsStack(t *testing.T) {
	t.Parallel()
	for _, fresh := range []launch.Fresh{launch.Fork, launch.Spawn, ""} {
		t.Run(string(fresh), func(t *testing.T) {
			t.Parallel()
			mode := gpumux.ModeFresh
			if fresh == "" {
				mode = gpumux.ModePersistent
			}
			s := newStand(t, mode)
			s.fresh = fresh
			got, err := s.run(s.task("item"), slot.Call{Call: calls.Call{Timeout: patience}, Work: work(object{"i": 0}, object{"i": 1, "end": "hang"})})
			require.Len(t, got, 1)
			f := fault(t, err)
			require.Equal(t, gpumux.FaultTimeout, f.Kind)
			require.Regexp(t, `(?s)most recent call first.*faults\.py", line \d+ in \S*.*faults\.py", line \d+ in item`, f.Traceback)
			require.NotContains(t, f.Tail, "most recent call first", "it is no output of the task")
			require.Contains(t, f.Tail, "last words of hang")
		})
	}
}

// What a process leaves in the worker is gone when its slot has the next process.
func TestSlot_FaultsLeakNothing(t *testing.T) {
	s := newStand(t, gpumux.ModePersistent)
	s.works()
	files := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(list)
	}
	goroutines, descriptors := runtime.NumGoroutine(), files()
	for _, how := range []string{"kill", "garbage", "hang"} {
		for range 3 {
			_, err := s.run(s.task("item"), slot.Call{Call: calls.Call{Timeout: patience / 4}, Work: work(object{"i": 0}, object{"i": 1, "end": how})})
			require.Error(t, err)
		}
	}
	s.works()
	rig.Wait(t, func() bool { return runtime.NumGoroutine() <= goroutines+2 && files() <= descriptors+2 },
		time.Minute, 5*time.Millisecond, "%d goroutines and %d descriptors before", goroutines, descriptors)
}

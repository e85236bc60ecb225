package slot_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/session"
	"github.com/gpumux/gpumux/internal/slot"
)

const mib = 1 << 20

// counter is the watch of a device that only counts: a process says in a file what it
// holds.
type counter struct{ file string }

func (c counter) Follow(string, int, gpumux.Size, func(session.Over)) session.Watched {
	_ = os.Remove(c.file) // what the process before held
	return c
}

func (c counter) Held() int64 {
	text, _ := os.ReadFile(c.file)
	held, _ := strconv.ParseInt(string(text), 10, 64) // 0 as long as there is no file
	return held
}

func (c counter) Measure() int64                    { return c.Held() }
func (c counter) Peak() int64                       { return c.Held() }
func (c counter) Busy(bool)                         {}
func (c counter) Close()                            {}
func (c counter) AwaitReturn(context.Context) int64 { return 0 }

// counted is a slot with a budget of 1000 MiB on a device that only counts, and a task of
// testdata/allocators there.
func counted(t testing.TB, function string, budget gpumux.Size) (*slot.Slot, launch.Task) {
	t.Helper()
	dir, err := filepath.Abs("testdata/allocators")
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "held")
	s := slot.New(slot.Options{Name: "gpu/0", Device: "GPU-1", Memory: budget, Runtime: runtimePath(t), Watch: counter{file}})
	t.Cleanup(func() { require.NoError(t, s.Stop(context.Background())) })
	return s, launch.Task{Name: function, Python: "tasks.py:" + function, Dir: dir, Env: map[string]string{
		"HELD": file, "PYTHONPYCACHEPREFIX": filepath.Join(os.TempDir(), "gpumux-test-runtime", "cache"),
	}}
}

// memoryItem is an item of testdata/allocators, in MiB.
type memoryItem struct {
	Size    int     `json:"size,omitempty"`
	Keep    int     `json:"keep,omitempty"`
	Cycle   int     `json:"cycle,omitempty"`
	Native  int     `json:"native,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
}

func repeated(item memoryItem, times int) []any {
	list := make([]any, times)
	for i := range list {
		list[i] = item
	}
	return list
}

type memoryResult struct{ PID, Compiled, Cleared, Emptied int }

// memoryResults are what the items returned, and the processes that ran them.
func memoryResults(t *testing.T, got []calls.Done) (last memoryResult, processes int) {
	t.Helper()
	pids := map[int]bool{}
	for _, d := range got {
		require.Nil(t, d.Fault)
		require.NoError(t, json.Unmarshal(d.Value, &last))
		pids[last.PID] = true
	}
	return last, len(pids)
}

func TestSlot_WhatGrowsOnADeviceIsRecycled(t *testing.T) {
	t.Parallel()
	for name, item := range map[string]memoryItem{
		"live": {Size: 100, Keep: 20}, "outside": {Size: 100, Native: 20}, "in cycles": {Size: 100, Cycle: 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, task := counted(t, "cached", 1000*mib)
			got, err := run(t, s, task, slot.Call{Work: work(repeated(item, 120)...)})
			require.NoError(t, err)
			require.Len(t, got, 120)
			_, processes := memoryResults(t, got)
			stats := s.Stats()
			t.Logf("%+v", stats)
			require.Positive(t, stats.Recycled["full"])
			require.Less(t, processes, 8, "most of the budget is used")
		})
	}
}

// A peak is what was live, and what the process holds beside the allocator; not the
// cache.
func TestSlot_PeaksOnADeviceAreWhatWasLive(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*launch.Task){
		"persistent": func(*launch.Task) {},
		"fresh":      func(task *launch.Task) { task.Mode = gpumux.ModeFresh },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, task := counted(t, "cached", 0)
			change(&task)
			got, err := run(t, s, task, slot.Call{Work: work(
				memoryItem{Size: 800, Seconds: 0.03}, memoryItem{Size: 100, Seconds: 0.03}, memoryItem{Size: 300, Seconds: 0.03},
			)})
			require.NoError(t, err)
			for i, size := range []int64{800, 100, 300} {
				require.EqualValues(t, (40+50+size)*mib, got[i].Peak, "item %d", i)
			}
		})
	}
}

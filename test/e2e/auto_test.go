package e2e

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers"
	"github.com/gpumux/gpumux/workers/config"
)

// A pool with slots: auto begins with one slot. Under a task that only waits it grows,
// the map's window with it, and every item runs once while slots come and go.
func TestLong_AutoSlotsGrowWithTheWork(t *testing.T) {
	b := newBench(t, 1)
	const items = 6000
	dir, out := b.config.Dir, filepath.Join(b.config.Dir, "store", "out.jsonl")
	calls := filepath.Join(t.TempDir(), "calls")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "patient.py"), []byte(`
import os, time
calls = os.open(os.environ["CALLS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def wait(item):
    os.write(calls, b"%d\n" % item)
    time.sleep(0.02)
    return item
`), 0o644))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8)) // the bound
	b.config.Pools[0].Slots = config.AutoSlots
	b.config.Tasks["wait"] = config.Task{Python: "patient.py:wait", Env: map[string]string{"CALLS": calls}}
	w := b.start(t, workers.Options{})
	pool := w.Describe().Pools[0]
	require.Equal(t, []int{1, 8}, []int{pool.Slots, pool.MaxSlots})

	in := gpumux.MapInput{Task: "wait", Ladder: []string{"cpu"}, Range: &gpumux.Range{End: items}, Output: "out.jsonl"}
	run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: gpumux.Queue}, gpumux.MapWorkflow, in)
	require.NoError(t, err)
	sum := finish(t, run, 3*time.Minute)
	require.EqualValues(t, items, sum.Succeeded)
	require.GreaterOrEqual(t, w.Describe().Pools[0].Slots, 4)
	t.Logf("%d slots, %s for %s of waiting", w.Describe().Pools[0].Slots, time.Duration(sum.Elapsed), items*20*time.Millisecond)

	file, err := os.Open(out)
	require.NoError(t, err)
	defer file.Close()
	next := 0
	for lines := bufio.NewScanner(file); lines.Scan(); next++ {
		var r struct{ Index, Value int }
		require.NoError(t, json.Unmarshal(lines.Bytes(), &r))
		require.Equal(t, []int{next, next}, []int{r.Index, r.Value})
	}
	require.Equal(t, items, next)
	called, err := os.ReadFile(calls)
	require.NoError(t, err)
	require.Equal(t, items, strings.Count(string(called), "\n"), "each item ran once")
}

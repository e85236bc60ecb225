package e2e

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers/config"
)

// A pool with slots: auto begins with one slot. Under a task that only waits it grows,
// the map's window with it, and every item runs once while slots come and go.
func TestLong_AutoSlotsGrowWithTheWork(t *testing.T) {
	s := newSite(t)
	const n = 6000
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "patient.py"), []byte(`
import os, time
calls = os.open(os.environ["CALLS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def nap(item):
    os.write(calls, b"%d\n" % item)
    time.sleep(0.02)
    return item
`), 0o644))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8)) // the bound
	c := s.config("cpu", 1)
	c.Pools[0].Slots = config.AutoSlots
	c.Tasks["nap"] = config.Task{Python: "patient.py:nap", Env: map[string]string{"CALLS": s.calls}}
	w := s.serve(c)
	pool := w.Describe().Pools[0]
	require.Equal(t, []int{1, 8}, []int{pool.Slots, pool.MaxSlots})

	sum, err := s.run(gpumux.MapInput{Task: "nap", Ladder: []string{"cpu"}, Range: &gpumux.Range{End: n}, Output: "out.jsonl"})
	require.NoError(t, err)
	require.EqualValues(t, n, sum.Succeeded)
	require.GreaterOrEqual(t, w.Describe().Pools[0].Slots, 4)
	t.Logf("%d slots, %s for %s of waiting", w.Describe().Pools[0].Slots, time.Duration(sum.Elapsed), n*20*time.Millisecond)
	require.Equal(t, n, s.succeeded(sum))
	s.calledOnce(n)
}

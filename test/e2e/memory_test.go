package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workers"
	"github.com/gpumux/gpumux/workers/config"
)

const memoryPy = `
import os, time
def hold(mb):
    # every page is written, and held until a watch must have seen it
    block = b"x" * (mb << 20)
    time.sleep(1.5 if mb > 100 else 0.02)
    return [len(block) >> 20, os.environ["POOL"]]
`

// memoryPool is a worker of one pool whose slots have a budget.
func (s *site) memoryPool(pool string, slots int, budget gpumux.Size) *workers.Worker {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(filepath.Join(s.dir, "memory.py"), []byte(memoryPy), 0o644))
	c := s.config(pool, slots)
	c.Pools[0].Memory = budget
	c.Tasks["hold"] = config.Task{Python: "memory.py:hold", Env: map[string]string{"POOL": pool}}
	return s.serve(c)
}

func TestMemory_ItemsOverTheBudgetGoToALargerPool(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.memoryPool("small", 2, 120<<20)
	large := s.memoryPool("large", 1, 512<<20)
	require.Contains(t, large.Describe().Pools[0].Means, "watch every 100ms")

	list := make([]any, 16)
	for i := range list {
		list[i] = 10 + i
	}
	list[5], list[11] = 250, 300
	sum, err := s.run(gpumux.MapInput{Task: "hold", Items: items(list...), Ladder: []string{"small", "large"}, Chunk: 1})
	require.NoError(t, err)
	require.EqualValues(t, 16, sum.Succeeded)
	for i, r := range s.results(sum) {
		want := []any{float64(list[i].(int)), "small"}
		if i == 5 || i == 11 {
			want[1] = "large"
		}
		var got []any
		require.NoError(t, json.Unmarshal(r.Value, &got))
		require.Equal(t, want, got, "item %d", i)
	}
	require.EqualValues(t, 16, sum.Peak.Items())
	require.EqualValues(t, 512<<20, sum.Peak.Budget)
	require.InDelta(t, 315<<20, int64(sum.Peak.Max()), 20<<20, "300 MiB and the interpreter")
	require.Less(t, sum.Peak.Quantile(0.5), gpumux.Size(60<<20))
	require.Equal(t, gpumux.Size(384<<20), sum.Peak.Need())

	// Without a larger pool the fault says what would do.
	sum, err = s.run(gpumux.MapInput{Task: "hold", Items: items(10, 300, 10), Ladder: []string{"small"}})
	require.NoError(t, err)
	require.Equal(t, map[gpumux.FaultKind]int64{gpumux.FaultBudget: 1}, sum.Faults)
	f := s.results(sum)[1].Fault
	require.EqualValues(t, 240<<20, f.Budget, "it had the whole device")
	require.Greater(t, f.Peak, f.Budget)
	require.Contains(t, f.Hint, "give the pool memory: ")
	require.Contains(t, f.Slot, "small/")
}

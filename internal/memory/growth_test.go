package memory

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/gpu"
)

func TestGrowth_ALeakIsRecycledBeforeItPassesTheBudget(t *testing.T) {
	b := newWorkbench(t, nil)
	s := b.slot(gpu.CPU, 200<<20)
	got, err := run(s, b.task("leak"), same(5, 150)...)
	require.NoError(t, err, "no item pays for it")
	require.Len(t, got, 150)
	stats := s.Stats()
	require.Positive(t, stats.Recycled["full"], "%v", stats)
	require.GreaterOrEqual(t, stats.Recycled["full"], stats.Processes-1)
	require.EqualValues(t, 150, stats.Items)
	require.Less(t, stats.Processes, int64(15), "a process is used for most of its budget")
	line := b.log.FilterMessage("task process recycled").All()[0].ContextMap()
	require.Equal(t, "full", line["reason"])
	require.Regexp(t, `of 200MiB are needed between items, .* more than after the first one`, line["why"])
}

// Garbage that no collection has found yet is a reason like any other: no item pays.
func TestGrowth_GarbageIsRecycledToo(t *testing.T) {
	b := newWorkbench(t, nil)
	s := b.slot(gpu.CPU, 200<<20)
	got, err := run(s, b.task("litter"), same(4, 200)...)
	require.NoError(t, err)
	require.Len(t, got, 200)
	require.Positive(t, s.Stats().Recycled["full"])
}

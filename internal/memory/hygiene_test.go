package memory

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/slot"
)

func TestHygiene_ALeakIsRecycledBeforeItPassesTheBudget(t *testing.T) {
	b := newWorkbench(t, nil, false)
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
	require.Regexp(t, `of 200MiB are needed between items, and a trim gave little back`, line["why"])
}

func TestHygiene_TrimsGiveGarbageBackWhileItemsRun(t *testing.T) {
	b := newWorkbench(t, nil, false)
	s := b.slot(gpu.CPU, 200<<20)
	got, err := run(s, b.task("litter"), same(4, 200)...)
	require.NoError(t, err)
	pids := map[string]bool{}
	for _, d := range got {
		pids[string(d.Value)] = true
	}
	stats := s.Stats()
	t.Logf("%+v", stats)
	require.Positive(t, stats.Trims)
	require.Greater(t, stats.Freed, int64(200<<20))
	require.Len(t, pids, 1, "one process does it all")
}

func TestHygiene_TrimsWhenNobodyWaits(t *testing.T) {
	b := newWorkbench(t, nil, false)
	s := b.slot(gpu.CPU, 200<<20)
	_, err := run(s, b.task("litter"), 110)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.Stats().Trims == 1 }, time.Minute, 10*time.Millisecond)
	require.Greater(t, s.Stats().Freed, int64(100<<20))
	require.Equal(t, slot.Ready, s.State())
	got, err := run(s, b.task("litter"), 110)
	require.NoError(t, err)
	require.Len(t, got, 1)
}

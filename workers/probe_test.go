package workers

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/workers/config"
	"github.com/gpumux/gpumux/workers/slot"
)

// proving is a worker of one pool on the CPU with a budget, not started, whose watch runs or does not.
func proving(t *testing.T, watches bool) (*Worker, *observer.ObservedLogs) {
	t.Helper()
	inventory, err := gpu.Open(gpu.Options{NoNVML: true})
	require.NoError(t, err)
	core, seen := observer.New(zap.InfoLevel)
	w, err := New(config.Config{
		Store: "file://" + t.TempDir(), Tasks: map[string]config.Task{"t": {Command: []string{"true"}}},
		Pools: []config.Pool{{Name: "cpu", Devices: gpu.Selection{"cpu"}, Memory: 64 << 20}},
	}, Options{Inventory: inventory, Log: zap.New(core)})
	require.NoError(t, err)
	w.watch, w.allowances = newWatch(inventory, true, w.log), newAllowances(w.log)
	if watches {
		ctx, cancel := context.WithCancel(context.Background())
		w.guards.Go(func() { w.watch.run(ctx) })
		t.Cleanup(func() { cancel(); w.guards.Wait() })
	}
	return w, seen
}

func (w *Worker) proved(t *testing.T) []string {
	t.Helper()
	w.prove(t.Context())
	for _, p := range w.placements {
		w.enforced[p.Name] = w.means(p)
	}
	w.sayMeans()
	return w.Describe().Pools[0].Means
}

// A throw-away process takes more than its budget for real.
func TestProbe_AWatchThatHoldsIsCountedOn(t *testing.T) {
	t.Parallel()
	w, seen := proving(t, true)
	require.Equal(t, []string{"watch every 100ms"}, w.proved(t))
	require.Zero(t, seen.FilterLevelExact(zap.WarnLevel).Len())
	require.Equal(t, 1, seen.FilterMessage("budget 64MiB enforced by: watch every 100ms").Len())
}

func TestProbe_WithoutItsToolsNothingIsProved(t *testing.T) {
	w, seen := proving(t, true)
	t.Setenv("PATH", t.TempDir())
	require.Equal(t, []string{"watch every 100ms"}, w.proved(t))
	lines := seen.FilterMessage("whether a budget is enforced by watch is not known").All()
	require.Len(t, lines, 1)
	require.Contains(t, lines[0].ContextMap()["error"], "which needs sh, head, tail and wc, took no memory")
}

// On a machine that is too slow to take the memory in time nothing was tried, and what enforces is not said to be broken.
func TestProbe_ATimeoutProvesNothing(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "head"), []byte("#!/bin/sh\nexec sleep 600\n"), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	err := probe(t.Context(), slot.Options{}, 100*time.Millisecond)
	require.ErrorIs(t, err, errUntried)
	require.ErrorContains(t, err, "within 100ms")
}

func TestProbe_MeansThatDoNotHoldAreSaid(t *testing.T) {
	t.Parallel()
	w, seen := proving(t, false)
	require.Empty(t, w.proved(t))
	lines := seen.FilterMessage("a budget is not enforced by watch, which was tried with a throw-away process").All()
	require.Len(t, lines, 1)
	require.Contains(t, lines[0].ContextMap()["error"], "a process took 48MiB of a budget of 24MiB and was not ended within 3s")
	loud := seen.FilterLevelExact(zap.ErrorLevel).All()
	require.Len(t, loud, 1)
	require.Contains(t, loud[0].Message, "budget 64MiB enforced by: none; ")
}

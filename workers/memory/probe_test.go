package memory

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/workers/config"
	"github.com/gpumux/gpumux/workers/slot"
)

// proved returns the means of a CPU pool with a budget, and the log. The watch runs only if watches is true.
func proved(t *testing.T, watches bool) ([]string, *observer.ObservedLogs) {
	t.Helper()
	inventory, err := gpu.Open(gpu.Options{NoNVML: true})
	require.NoError(t, err)
	e, seen := enforcer(t, inventory, config.Pool{Name: "cpu", Devices: gpu.Selection{"cpu"}, Memory: 64 << 20})
	if watches {
		ctx, cancel := context.WithCancel(context.Background())
		var all sync.WaitGroup
		all.Go(func() { e.Run(ctx) })
		t.Cleanup(func() { cancel(); all.Wait() })
	}
	e.Prove(t.Context())
	return e.Means("cpu"), seen
}

// The probe starts a process that really takes more than its budget.
func TestProbe_AWatchThatHoldsIsCountedOn(t *testing.T) {
	t.Parallel()
	means, seen := proved(t, true)
	require.Equal(t, []string{"watch every 100ms"}, means)
	require.Zero(t, seen.FilterLevelExact(zap.WarnLevel).Len())
	require.Equal(t, 1, seen.FilterMessage("budget 64MiB enforced by: watch every 100ms").Len())
}

func TestProbe_WithoutItsToolsNothingIsProved(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	means, seen := proved(t, true)
	require.Equal(t, []string{"watch every 100ms"}, means)
	lines := seen.FilterMessage("whether a budget is enforced by watch is not known").All()
	require.Len(t, lines, 1)
	require.Contains(t, lines[0].ContextMap()["error"], "which needs sh, head, tail and wc, took no memory")
}

// A slow machine may not take the memory in time. Then nothing was tried, and no means is called broken.
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
	means, seen := proved(t, false)
	require.Empty(t, means)
	lines := seen.FilterMessage("a budget is not enforced by watch, which was tried with a throw-away process").All()
	require.Len(t, lines, 1)
	require.Contains(t, lines[0].ContextMap()["error"], "a process took 48MiB of a budget of 24MiB and was not ended within 3s")
	loud := seen.FilterLevelExact(zap.ErrorLevel).All()
	require.Len(t, loud, 1)
	require.Contains(t, loud[0].Message, "budget 64MiB enforced by: none; ")
}

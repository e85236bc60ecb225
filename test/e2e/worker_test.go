package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/test/rig"
)

// process waits for the only task process of the site's worker and returns its number.
func (s *site) process() int {
	s.t.Helper()
	var pids []int
	rig.Wait(s.t, func() bool { pids = pidsIn(s.t, s.dir); return len(pids) > 0 }, time.Minute, 10*time.Millisecond)
	return pids[0]
}

// A worker that stops hands its chunk back; the next worker finishes it, and nothing of
// the first is left. An ended context does not wait for the chunk at all.
func TestWorker_StopHandsBack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.worker("cpu", 1)
	gate := filepath.Join(s.dir, "gate")
	run := s.start(gpumux.MapInput{Task: "wait", Items: items(s.dir, s.dir, gate, s.dir), Ladder: []string{"cpu"}, Chunk: 4})
	pid := s.process()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, first.Stop(ctx))
	require.NoError(t, ctx.Err(), "it does not wait for an item that goes on")
	require.NoError(t, first.Stop(ctx), "twice is fine")
	require.NoDirExists(t, fmt.Sprintf("/proc/%d", pid))
	require.ErrorContains(t, first.Start(ctx), "make a new one")

	second := s.worker("cpu", 1)
	pid = s.process()
	over, now := context.WithCancel(t.Context())
	now()
	require.NoError(t, second.Stop(over))
	require.NoDirExists(t, fmt.Sprintf("/proc/%d", pid))

	require.NoError(t, os.WriteFile(gate, nil, 0o644))
	s.worker("cpu", 1)
	var sum gpumux.Summary
	require.NoError(t, run.Get(ctx, &sum))
	require.EqualValues(t, 4, sum.Succeeded, "%+v", sum)
}

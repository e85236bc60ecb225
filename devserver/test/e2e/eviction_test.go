package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/rig"
)

// A worker whose host gives notice ends well, and another one goes on with its map.
func TestEviction_AnotherHostGoesOn(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.write("worker.yaml", h.file("worker.yaml")+"notice: {file: notice}\n")
	h.server()
	spot := h.worker()
	m := h.begin("map", "step", "--range", "0:1000", "--pool", "cpu", "--out", "r.jsonl")
	rig.Wait(t, func() bool { return strings.Count(h.file("calls"), "\n") >= 10 }, time.Minute, 20*time.Millisecond)
	h.write("notice", "")
	require.Zero(t, spot.code(), "%s", &spot.stderr)
	require.Equal(t, 1, strings.Count(spot.stderr.String(), "the host ends soon, so the worker stops as on SIGTERM"), "%s", &spot.stderr)
	require.NoError(t, os.Remove(h.path("notice")))
	h.worker()
	require.Zero(t, m.code(), "%s", &m.stderr)
	h.complete("r.jsonl", 1000)
	count, _ := h.ran()
	require.Len(t, count, 1000)
	for item, n := range count {
		require.Equal(t, 1, n, "item %s", item)
	}
}

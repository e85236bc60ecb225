package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/starter"
)

// A chunk that is handed on starts again although its heartbeat's timeout is far, and its
// first attempt ends.
func TestHandOn_ChunksOfADeadWorkerStartAgainAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 1)
	run := s.start(gpumux.MapInput{Task: "slow", Items: items(600), Ladder: []string{"cpu"}})
	began := func() int {
		data, err := os.ReadFile(s.calls)
		require.NoError(t, err)
		return strings.Count(string(data), "\n")
	}
	rig.Wait(t, func() bool { return began() == 1 }, time.Minute, 5*time.Millisecond)
	st := &starter.Starter{Client: s.client, Namespace: s.namespace}
	n, err := fleetOf(st).HandOn(t.Context(), func(string) bool { return false })
	require.NoError(t, err)
	require.Zero(t, n, "a living worker keeps its chunks")
	var asked string
	n, err = fleetOf(st).HandOn(t.Context(), func(identity string) bool { asked = identity; return true })
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Contains(t, asked, "/")
	rig.Wait(t, func() bool { return began() == 2 }, time.Minute, 5*time.Millisecond)
	require.NoError(t, s.client.CancelWorkflow(t.Context(), run.GetID(), ""))
	require.ErrorContains(t, run.Get(t.Context(), nil), "canceled")
}

package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/workflows"
)

// patience is more than a worker that is there takes to say so on a busy machine.
const patience = gpumux.Duration(4 * time.Second)

// pools counts the results of the tasks greedy and paced by the pool that made them.
func pools(t *testing.T, results []gpumux.Result) map[string]int {
	t.Helper()
	by := map[string]int{}
	for i, r := range results {
		require.Nil(t, r.Fault)
		var got []any
		require.NoError(t, json.Unmarshal(r.Value, &got))
		require.EqualValues(t, i, got[0])
		by[got[1].(string)]++
	}
	return by
}

// A map passes over a pool that nobody serves, but not one that is busy, and goes back to
// one that has a worker again. One that nobody can serve ends with its poolTimeout.
func TestPatience_PoolsThatComeAndGo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.worker("first", 1)
	s.worker("second", 1)
	run := s.start(gpumux.MapInput{Task: "paced", Range: &gpumux.Range{End: 1500}, Ladder: []string{"gone", "first", "second"}, Patience: patience, Output: "out.jsonl"})
	late := gpumux.MapInput{Task: "double", Items: items(1, 2, 3), Ladder: []string{"gpu"}, PoolTimeout: gpumux.Duration(5 * time.Second)}
	_, err := s.run(late)
	fault := workflows.FaultOf(err)
	require.NotNil(t, fault, "%v", err)
	require.Equal(t, gpumux.FaultTimeout, fault.Kind)
	require.Equal(t, "start", fault.Op)
	require.Equal(t, "no worker had a healthy device for gpu within the poolTimeout of 5s; 0 of 3 items are done", fault.Message)

	rig.Wait(t, func() bool { return len(s.seen()) > 100 }, time.Minute, time.Millisecond)
	require.Equal(t, []string{"gone"}, s.progress(run).PassedOver)
	stop, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, first.Stop(stop))
	rig.Wait(t, func() bool { return len(s.progress(run).PassedOver) == 2 }, time.Minute, 10*time.Millisecond)
	s.worker("first", 1)
	rig.Wait(t, func() bool { return len(s.progress(run).PassedOver) == 1 }, time.Minute, 10*time.Millisecond)
	var sum gpumux.Summary
	require.NoError(t, run.Get(t.Context(), &sum))
	require.Equal(t, []string{"gone", "first"}, sum.PassedOver)
	by := pools(t, s.results(sum))
	require.Positive(t, by["second"], "%v", by)
	require.Greater(t, by["first"], 100, "%v", by)

	// The only slot of the first pool is busy for longer than the patience.
	s.forget()
	gate := filepath.Join(s.dir, "gate")
	busy := s.start(gpumux.MapInput{Task: "wait", Items: items(gate), Ladder: []string{"first"}})
	rig.Wait(t, func() bool { return len(s.seen()) == 1 }, time.Minute, 5*time.Millisecond)
	run = s.start(gpumux.MapInput{Task: "greedy", Range: &gpumux.Range{End: 20}, Ladder: []string{"first", "second"}, Patience: patience})
	passed := s.start(gpumux.MapInput{Task: "double", Items: items(1), Ladder: []string{"gone", "second"}, Patience: patience + gpumux.Duration(time.Second)})
	require.NoError(t, passed.Get(t.Context(), nil), "the patience is over")
	require.NoError(t, os.WriteFile(gate, nil, 0o644))
	require.NoError(t, run.Get(t.Context(), &sum))
	require.Equal(t, map[string]int{"first": 20}, pools(t, s.results(sum)))
	require.NoError(t, busy.Get(t.Context(), nil))
}

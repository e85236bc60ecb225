package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/workers/config"
)

// patience is more than a worker that is there takes to say so on a busy machine.
const patience = gpumux.Duration(4 * time.Second)

// pools counts the results of the task greedy by the pool that made them.
func pools(t *testing.T, results []gpumux.Result) map[string]int {
	t.Helper()
	by := map[string]int{}
	for i, r := range results {
		require.EqualValues(t, i, r.Index)
		require.Nil(t, r.Fault)
		var got []any
		require.NoError(t, json.Unmarshal(r.Value, &got))
		require.EqualValues(t, i, got[0])
		by[got[1].(string)]++
	}
	return by
}

// passed are the pools that a map passes over now.
func (s *site) passed(run client.WorkflowRun) []string {
	answer, err := s.client.QueryWorkflow(s.t.Context(), run.GetID(), run.GetRunID(), gpumux.ProgressQuery)
	require.NoError(s.t, err)
	var p gpumux.Progress
	require.NoError(s.t, answer.Get(&p))
	return p.PassedOver
}

func TestPatience_APoolThatNobodyServesIsPassedOver(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("large", 2)
	sum, err := s.run(gpumux.MapInput{Task: "greedy", Range: &gpumux.Range{End: 50}, Ladder: []string{"gone", "away", "large"}, Patience: patience})
	require.NoError(t, err)
	require.Equal(t, map[string]int{"large": 50}, pools(t, s.results(sum)))
	require.Equal(t, []string{"gone", "away"}, sum.PassedOver)
}

// The only slot of the first pool is busy for longer than the patience.
func TestPatience_ABusyPoolIsNotPassedOver(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("first", 1)
	s.worker("second", 2)
	run := s.start(gpumux.MapInput{Task: "slow", Items: items(12), Ladder: []string{"first"}})
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(s.calls)
		return err == nil && len(text) > 0
	}, time.Minute, time.Millisecond)
	sum, err := s.run(gpumux.MapInput{Task: "greedy", Range: &gpumux.Range{End: 20}, Ladder: []string{"first", "second"}, Patience: patience})
	require.NoError(t, err)
	require.Equal(t, map[string]int{"first": 20}, pools(t, s.results(sum)))
	require.Empty(t, sum.PassedOver)
	require.NoError(t, run.Get(t.Context(), nil))
}

// What waits on the last pool goes back to one that has a worker again.
func TestPatience_NobodyServesAnyPool(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.worker("first", 1)
	s.worker("other", 1) // which runs the workflow meanwhile
	run := s.start(gpumux.MapInput{Task: "paced", Range: &gpumux.Range{End: 600}, Ladder: []string{"first", "second"}, Patience: patience, Output: "out.jsonl"})
	require.Eventually(t, func() bool { return len(s.seen()) > 100 }, time.Minute, time.Millisecond)
	stop, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, first.Stop(stop))
	require.Eventually(t, func() bool { return len(s.passed(run)) == 2 }, time.Minute, 10*time.Millisecond)
	s.worker("first", 1)
	var sum gpumux.Summary
	require.NoError(t, run.Get(t.Context(), &sum))
	require.Equal(t, map[string]int{"first": 600}, pools(t, s.results(sum)))
}

func TestPatience_AWorkerThatStopsAndOneThatComes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.worker("first", 1)
	s.worker("second", 1)
	run := s.start(gpumux.MapInput{Task: "paced", Range: &gpumux.Range{End: 1500}, Ladder: []string{"first", "second"}, Patience: patience, Output: "out.jsonl"})
	require.Eventually(t, func() bool { return len(s.seen()) > 100 }, time.Minute, time.Millisecond)
	require.Empty(t, s.passed(run))
	stop, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, first.Stop(stop))
	require.Eventually(t, func() bool { return len(s.passed(run)) == 1 }, time.Minute, 10*time.Millisecond)
	s.worker("first", 1)
	require.Eventually(t, func() bool { return len(s.passed(run)) == 0 }, time.Minute, 10*time.Millisecond)
	var sum gpumux.Summary
	require.NoError(t, run.Get(t.Context(), &sum))
	require.Equal(t, []string{"first"}, sum.PassedOver)
	by := pools(t, s.results(sum))
	require.Positive(t, by["second"], "%v", by)
	require.Greater(t, by["first"], 100, "%v", by)
}

// The only GPU falls sick and comes back; the CPU has its work meanwhile, and holds it
// until then.
func TestPatience_AllDevicesSick(t *testing.T) {
	if !own(t) {
		return
	}
	m := machine(t, gputest.GPU{})
	s := newSite(t)
	logs := s.gpus(m, 1, config.Pool{Name: "cpu", Devices: gpu.Selection{"cpu"}})
	run := s.start(gpumux.MapInput{Task: "either", Range: &gpumux.Range{End: 2000}, Ladder: []string{"gpu", "cpu"}, Patience: patience, Output: "out.jsonl"})
	there := func(name string) func() bool {
		return func() bool {
			_, err := os.Stat(filepath.Join(s.dir, name))
			return err == nil
		}
	}
	require.Eventually(t, there("middle"), time.Minute, time.Millisecond)
	m.Update(func(state *gputest.State) { state.GPUs[0].Sick.Init = 802 })
	require.Eventually(t, there("on the CPU"), time.Minute, time.Millisecond)
	m.Update(func(state *gputest.State) { state.GPUs[0].Sick.Init = 0 })
	require.Eventually(t, func() bool { return logs.FilterMessage("device works again").Len() == 1 }, time.Minute, 10*time.Millisecond)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "works again"), nil, 0o600))
	var sum gpumux.Summary
	require.NoError(t, run.Get(t.Context(), &sum))
	require.Equal(t, []string{"gpu"}, sum.PassedOver)
	by := squares(t, s.results(sum))
	require.Positive(t, by[""], "%v", by)
	require.True(t, there("back")(), "%v", by)
	require.Equal(t, 1, logs.FilterMessage("device cordoned").Len())
}

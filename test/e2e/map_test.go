package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/test/rig"
)

// TestMap_Kinds has a map of each kind, one after the other on the same workers. With
// -record their histories become those that package workflows replays.
func TestMap_Kinds(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 2)
	s.worker("small", 1)
	s.worker("large", 1)
	halves := s.config("halves", 2)
	halves.Pools[0].Memory = 256 << 20
	s.serve(halves)
	s.each(map[string]func(*site){
		"InlineItems": inlineItems, "TenThousandItemsFromASource": tenThousandItems, "FreshHasAProcessPerItem": freshProcesses,
		"DeathsAreRetriedAndPoisonItemsRecorded": deaths, "InlineDeathsKeepWhatHadFinished": inlineDeaths,
		"MemoryFaultsClimbTheLadder": memoryFaults, "WantOfMemoryGetsTheWholeDevice": wholeDevice, "CancelReachesTheProcess": cancelled,
		"LargeResultsGoThroughTheStore": largeResults,
		"PauseAndResume":                paused, "ALargeMapRunsInSegments": segments,
		"WhatTakesSlotsHasAFairnessKey": fairness,
	})
}

func inlineItems(s *site) {
	sum, err := s.run(gpumux.MapInput{Task: "double", Items: items(1, 2, 3), Ladder: []string{"cpu"}})
	require.NoError(s.t, err)
	require.EqualValues(s.t, 3, sum.Succeeded)
	for i, r := range s.results(sum) {
		require.Equal(s.t, strconv.Itoa(2*(i+1)), string(r.Value))
	}
	// Temporal's Web UI shows what a map answers to.
	answer, err := s.client.QueryWorkflow(s.t.Context(), "map-double", "", "__temporal_workflow_metadata")
	require.NoError(s.t, err)
	var metadata sdkpb.WorkflowMetadata
	require.NoError(s.t, answer.Get(&metadata))
	described := map[string]string{}
	for _, d := range append(metadata.GetDefinition().GetQueryDefinitions(), metadata.GetDefinition().GetUpdateDefinitions()...) {
		described[d.GetName()] = d.GetDescription()
	}
	for _, name := range []string{gpumux.ProgressQuery, gpumux.PauseUpdate, gpumux.ResumeUpdate} {
		require.NotEmpty(s.t, described[name], name)
	}
}

// processes checks that each of the task call's results is its item, and counts the
// processes that ran them.
func (s *site) processes(sum gpumux.Summary) int {
	pids := map[int]bool{}
	for i, r := range s.results(sum) {
		var value [2]int
		require.NoError(s.t, json.Unmarshal(r.Value, &value))
		require.Equal(s.t, i, value[0])
		pids[value[1]] = true
	}
	return len(pids)
}

func tenThousandItems(s *site) {
	sum, err := s.run(gpumux.MapInput{Task: "call", Source: s.source(numbers(10000)), Ladder: []string{"cpu"}, Output: "maps/a/results.jsonl"})
	require.NoError(s.t, err)
	require.Equal(s.t, 2, s.processes(sum), "as many processes as slots")
	s.calledOnce(10000)
}

func freshProcesses(s *site) {
	sum, err := s.run(gpumux.MapInput{Task: "call", Range: &gpumux.Range{End: 20}, Ladder: []string{"cpu"}, Mode: gpumux.ModeFresh})
	require.NoError(s.t, err)
	require.Equal(s.t, 20, s.processes(sum))
}

// dying is a source of n items of which one in a hundred ends its process once and one in
// a thousand always.
func dying(n int) (lines string, always []int) {
	var b strings.Builder
	for i := range n {
		how := "never"
		switch {
		case i%1000 == 777:
			how = "always"
			always = append(always, i)
		case i%100 == 50:
			how = "once"
		}
		fmt.Fprintf(&b, "{\"i\":%d,\"die\":%q}\n", i, how)
	}
	return b.String(), always
}

func deaths(s *site) {
	lines, always := dying(2000)
	sum, err := s.run(gpumux.MapInput{Task: "die", Source: s.source(lines), Ladder: []string{"cpu"}, Output: "maps/d/results.jsonl"})
	require.NoError(s.t, err)
	require.EqualValues(s.t, 1998, sum.Succeeded)
	require.Equal(s.t, map[gpumux.FaultKind]int64{gpumux.FaultCrash: 2}, sum.Faults)
	var failed []int
	for i, r := range s.results(sum) {
		if r.Fault == nil {
			require.Equal(s.t, strconv.Itoa(i), string(r.Value))
			continue
		}
		failed = append(failed, i)
		require.Equal(s.t, gpumux.FaultCrash, r.Fault.Kind)
		require.Equal(s.t, "signal SIGKILL", r.Fault.Exit)
		require.True(s.t, r.Fault.Alone)
		deaths, err := os.ReadFile(filepath.Join(s.dir, "markers", strconv.Itoa(i)))
		require.NoError(s.t, err)
		require.Equal(s.t, len(deaths), r.Fault.Attempts, "each try killed its process")
		require.LessOrEqual(s.t, r.Fault.Attempts, 3, "given up after two deaths alone")
	}
	require.Equal(s.t, always, failed)
	s.calledOnce(1998)
}

func inlineDeaths(s *site) {
	list := []any{}
	for i := range 30 {
		how := "never"
		if i == 20 {
			how = "once"
		}
		list = append(list, map[string]any{"i": i, "die": how})
	}
	sum, err := s.run(gpumux.MapInput{Task: "die", Items: items(list...), Ladder: []string{"cpu"}, Chunk: 30})
	require.NoError(s.t, err)
	require.EqualValues(s.t, 30, sum.Succeeded)
	require.Len(s.t, s.results(sum), 30)
	s.calledOnce(30)
}

func memoryFaults(s *site) {
	in := gpumux.MapInput{Task: "greedy", Range: &gpumux.Range{End: 6}, Ladder: []string{"small", "large"}}
	sum, err := s.run(in)
	require.NoError(s.t, err)
	for i, r := range s.results(sum) {
		pool := "small"
		if i == 3 {
			pool = "large"
		}
		require.Equal(s.t, fmt.Sprintf(`[%d,"%s"]`, i, pool), string(r.Value))
	}
	in.Ladder = in.Ladder[:1]
	sum, err = s.run(in)
	require.NoError(s.t, err)
	require.Equal(s.t, map[gpumux.FaultKind]int64{gpumux.FaultHostOOM: 1}, sum.Faults)
}

func wholeDevice(s *site) {
	sum, err := s.run(gpumux.MapInput{Task: "whole", Range: &gpumux.Range{End: 40}, Ladder: []string{"halves"}})
	require.NoError(s.t, err)
	require.EqualValues(s.t, 40, sum.Succeeded)
	for i, r := range s.results(sum) {
		budget := 256 << 20
		if i == 3 {
			budget *= 2
		}
		require.Equal(s.t, fmt.Sprintf("[%d,%d]", i, budget), string(r.Value))
	}
}

func cancelled(s *site) {
	run := s.start(gpumux.MapInput{Task: "slow", Items: items(600), Ladder: []string{"small"}})
	rig.Wait(s.t, func() bool { return len(s.seen()) > 0 }, time.Minute, 5*time.Millisecond)
	require.NoError(s.t, s.client.CancelWorkflow(s.t.Context(), run.GetID(), ""))
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	require.ErrorContains(s.t, run.Get(ctx, nil), "canceled")
	// The slot is free again: nothing else could run in this pool of one.
	sum, err := s.run(gpumux.MapInput{Task: "double", Items: items(4), Ladder: []string{"small"}})
	require.NoError(s.t, err)
	require.Equal(s.t, "8", string(sum.Results[0].Value))
	s.keep(run)
}

func largeResults(s *site) {
	sum, err := s.run(gpumux.MapInput{Task: "big", Items: items(10, 5<<20, 300<<10, 10, 300<<10, 10), Ladder: []string{"cpu"}, Chunk: 2})
	require.NoError(s.t, err)
	require.NotEmpty(s.t, sum.Output)
	require.Len(s.t, s.results(sum)[1].Value, 5<<20+2)
}

func paused(s *site) {
	run := s.start(gpumux.MapInput{Task: "slow", Range: &gpumux.Range{End: 3}, Ladder: []string{"small"}, Chunk: 1, Window: 1})
	s.update(run, gpumux.PauseUpdate)
	rig.Wait(s.t, func() bool { return s.progress(run).InFlight == 0 }, time.Minute, 5*time.Millisecond)
	require.True(s.t, s.progress(run).Paused)
	require.Less(s.t, s.progress(run).Succeeded, int64(3))
	s.update(run, gpumux.ResumeUpdate)
	var sum gpumux.Summary
	require.NoError(s.t, run.Get(s.t.Context(), &sum))
	require.EqualValues(s.t, 3, sum.Succeeded)
	s.keep(run)
}

func segments(s *site) {
	sum, err := s.run(gpumux.MapInput{Task: "call", Range: &gpumux.Range{End: 560}, Ladder: []string{"cpu"}, Output: "maps/l/results.jsonl", Chunk: 1})
	require.NoError(s.t, err)
	require.EqualValues(s.t, 560, sum.Chunks)
	s.results(sum)
	s.calledOnce(560)
	d, err := s.client.DescribeWorkflowExecution(s.t.Context(), "map-call", "")
	require.NoError(s.t, err)
	require.Less(s.t, d.WorkflowExecutionInfo.HistoryLength, int64(4000), "the map's own history stays short")
	segment := s.client.GetWorkflow(s.t.Context(), "map-call.segment-1", "")
	require.NoError(s.t, segment.Get(s.t.Context(), nil))
	s.keep(segment)
}

// The key with which somebody started the workflow stays.
func fairness(s *site) {
	for id, priority := range map[string]temporal.Priority{"small": {}, "of a team": {FairnessKey: "team", FairnessWeight: 2}} {
		in := gpumux.MapInput{Task: "double", Range: &gpumux.Range{End: 20}, Ladder: []string{"cpu"}, Output: "out/" + id[:5] + ".jsonl"}
		run, err := s.client.ExecuteWorkflow(s.t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: gpumux.Queue, Priority: priority}, gpumux.MapWorkflow, in)
		require.NoError(s.t, err)
		require.NoError(s.t, run.Get(s.t.Context(), nil))
		keys := map[string]bool{}
		for all := s.client.GetWorkflowHistory(s.t.Context(), id, run.GetRunID(), false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); all.HasNext(); {
			event, err := all.Next()
			require.NoError(s.t, err)
			if a := event.GetActivityTaskScheduledEventAttributes(); a != nil && a.GetTaskQueue().GetName() != gpumux.Queue {
				keys[a.GetPriority().GetFairnessKey()] = true
			}
		}
		want := id
		if priority.FairnessKey != "" {
			want = priority.FairnessKey
		}
		require.Equal(s.t, map[string]bool{want: true}, keys)
	}
}

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/workflows"
)

func TestMap_InlineItems(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 2)
	sum, err := s.run(gpumux.MapInput{Task: "double", Items: items(1, 2, 3), Ladder: []string{"cpu"}})
	require.NoError(t, err)
	require.EqualValues(t, 3, sum.Succeeded)
	for i, r := range s.results(sum) {
		require.Equal(t, strconv.Itoa(2*(i+1)), string(r.Value))
	}
}

func TestMap_TenThousandItemsFromASource(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 2)
	sum, err := s.run(gpumux.MapInput{Task: "call", Source: s.source(numbers(10000)), Ladder: []string{"cpu"}, Output: "maps/a/results.jsonl"})
	require.NoError(t, err)
	pids := map[string]bool{}
	for i, r := range s.results(sum) {
		var value [2]int
		require.NoError(t, json.Unmarshal(r.Value, &value))
		require.Equal(t, i, value[0])
		pids[fmt.Sprint(value[1])] = true
	}
	require.Len(t, pids, 2, "as many processes as slots")
	s.calledOnce(10000)
}

func TestMap_FreshHasAProcessPerItem(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 2)
	sum, err := s.run(gpumux.MapInput{Task: "call", Range: &gpumux.Range{End: 20}, Ladder: []string{"cpu"}, Mode: gpumux.ModeFresh})
	require.NoError(t, err)
	pids := map[string]bool{}
	for _, r := range s.results(sum) {
		var value [2]int
		require.NoError(t, json.Unmarshal(r.Value, &value))
		pids[fmt.Sprint(value[1])] = true
	}
	require.Len(t, pids, 20)
}

func TestMap_PartialFailureIsAResult(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 2)
	sum, err := s.run(gpumux.MapInput{Task: "fail", Range: &gpumux.Range{Start: 1, End: 10}, Ladder: []string{"cpu"}})
	require.NoError(t, err)
	require.EqualValues(t, 6, sum.Succeeded)
	require.Equal(t, map[gpumux.FaultKind]int64{gpumux.FaultTaskError: 3}, sum.Faults)
	r := s.results(sum)
	require.Equal(t, "3 is a multiple of three", r[2].Fault.Message)
	require.Equal(t, "ValueError", r[2].Fault.Class)

	_, err = s.run(gpumux.MapInput{Task: "fail", Range: &gpumux.Range{Start: 1, End: 10}, Ladder: []string{"cpu"}, MaxFailures: "0"})
	require.ErrorContains(t, err, "is a multiple of three")
}

func TestMap_DeathsAreRetriedAndPoisonItemsRecorded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 2)
	var lines strings.Builder
	for i := range 300 {
		how := "never"
		switch {
		case i%100 == 50:
			how = "always"
		case i%20 == 7:
			how = "once"
		}
		fmt.Fprintf(&lines, "{\"i\":%d,\"die\":%q}\n", i, how)
	}
	sum, err := s.run(gpumux.MapInput{Task: "die", Source: s.source(lines.String()), Ladder: []string{"cpu"}, Output: "maps/d/results.jsonl"})
	require.NoError(t, err)
	require.EqualValues(t, 297, sum.Succeeded)
	require.Equal(t, map[gpumux.FaultKind]int64{gpumux.FaultCrash: 3}, sum.Faults)
	for i, r := range s.results(sum) {
		if i%100 == 50 {
			require.Equal(t, gpumux.FaultCrash, r.Fault.Kind)
			require.Contains(t, r.Fault.Exit, "SIGKILL")
		}
	}
	s.calledOnce(297)
}

func TestMap_InlineDeathsKeepWhatHadFinished(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 1)
	list := []any{}
	for i := range 30 {
		how := "never"
		if i == 20 {
			how = "once"
		}
		list = append(list, map[string]any{"i": i, "die": how})
	}
	sum, err := s.run(gpumux.MapInput{Task: "die", Items: items(list...), Ladder: []string{"cpu"}, Chunk: 30})
	require.NoError(t, err)
	require.EqualValues(t, 30, sum.Succeeded)
	require.Len(t, s.results(sum), 30)
	s.calledOnce(30)
}

func TestMap_MemoryFaultsClimbTheLadder(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("small", 1)
	s.worker("large", 1)
	sum, err := s.run(gpumux.MapInput{Task: "greedy", Range: &gpumux.Range{End: 6}, Ladder: []string{"small", "large"}})
	require.NoError(t, err)
	for i, r := range s.results(sum) {
		pool := "small"
		if i == 3 {
			pool = "large"
		}
		require.Equal(t, fmt.Sprintf(`[%d,"%s"]`, i, pool), string(r.Value))
	}
	sum, err = s.run(gpumux.MapInput{Task: "greedy", Range: &gpumux.Range{End: 6}, Ladder: []string{"small"}})
	require.NoError(t, err)
	require.Equal(t, map[gpumux.FaultKind]int64{gpumux.FaultHostOOM: 1}, sum.Faults)
}

func TestMap_WantOfMemoryGetsTheWholeDevice(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.config("cpu", 2)
	c.Pools[0].Memory = 256 << 20
	s.serve(c)
	sum, err := s.run(gpumux.MapInput{Task: "whole", Range: &gpumux.Range{End: 40}, Ladder: []string{"cpu"}})
	require.NoError(t, err)
	require.EqualValues(t, 40, sum.Succeeded)
	for i, r := range s.results(sum) {
		budget := 256 << 20
		if i == 3 {
			budget *= 2
		}
		require.Equal(t, fmt.Sprintf("[%d,%d]", i, budget), string(r.Value))
	}
}

func TestMap_CancelReachesTheProcess(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 1)
	run := s.start(gpumux.MapInput{Task: "slow", Items: items(600), Ladder: []string{"cpu"}})
	require.Eventually(t, func() bool { data, _ := os.ReadFile(s.calls); return len(data) > 0 }, time.Minute, 5*time.Millisecond)
	require.NoError(t, s.client.CancelWorkflow(t.Context(), run.GetID(), ""))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.ErrorContains(t, run.Get(ctx, nil), "canceled")
	// The slot is free again: nothing else could run in this pool of one.
	sum, err := s.run(gpumux.MapInput{Task: "double", Items: items(4), Ladder: []string{"cpu"}})
	require.NoError(t, err)
	require.Equal(t, "8", string(sum.Results[0].Value))
	s.keep(run)
}

func TestMap_ATimeoutIsAFault(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 1)
	sum, err := s.run(gpumux.MapInput{Task: "slow", Items: items(0, 600, 0), Ladder: []string{"cpu"}, Timeout: gpumux.Duration(time.Second / 2)})
	require.NoError(t, err)
	require.Equal(t, map[gpumux.FaultKind]int64{gpumux.FaultTimeout: 1}, sum.Faults)
	require.EqualValues(t, 2, sum.Succeeded)
}

func TestMap_AnUnknownTaskSaysWhatThereIs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 1)
	_, err := s.run(gpumux.MapInput{Task: "dubble", Items: items(1), Ladder: []string{"cpu"}})
	f := workflows.FaultOf(err)
	require.NotNil(t, f, "%v", err)
	require.Equal(t, gpumux.FaultBadInput, f.Kind)
	require.Contains(t, f.Error(), "double")
}

func TestMap_LargeResultsGoThroughTheStore(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 2)
	sum, err := s.run(gpumux.MapInput{Task: "big", Items: items(10, 5<<20, 300<<10, 10, 300<<10, 10), Ladder: []string{"cpu"}, Chunk: 2})
	require.NoError(t, err)
	require.NotEmpty(t, sum.Output)
	require.Len(t, s.results(sum)[1].Value, 5<<20+2)
}

func TestMap_PauseAndResume(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 1)
	run := s.start(gpumux.MapInput{Task: "slow", Range: &gpumux.Range{End: 3}, Ladder: []string{"cpu"}, Chunk: 1, Window: 1})
	update := func(name string, args ...any) {
		h, err := s.client.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
			WorkflowID: run.GetID(), UpdateName: name, Args: args, WaitForStage: client.WorkflowUpdateStageCompleted,
		})
		require.NoError(t, err)
		require.NoError(t, h.Get(t.Context(), nil))
	}
	progress := func() (p gpumux.Progress) {
		v, err := s.client.QueryWorkflow(t.Context(), run.GetID(), "", gpumux.ProgressQuery)
		require.NoError(t, err)
		require.NoError(t, v.Get(&p))
		return p
	}
	update(gpumux.PauseUpdate)
	rig.Wait(t, func() bool { return progress().InFlight == 0 }, time.Minute, 5*time.Millisecond)
	require.True(t, progress().Paused)
	require.Less(t, progress().Succeeded, int64(3))
	update(gpumux.WindowUpdate, 2)
	require.Equal(t, 2, progress().Window)
	update(gpumux.ResumeUpdate)
	var sum gpumux.Summary
	require.NoError(t, run.Get(t.Context(), &sum))
	require.EqualValues(t, 3, sum.Succeeded)
	s.keep(run)
}

func TestMap_ACancelledMapGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 1)
	in := gpumux.MapInput{Task: "call", Source: s.source(numbers(2000)), Ladder: []string{"cpu"}, Output: "maps/c/results.jsonl", Chunk: 50, Window: 1}
	run := s.start(in)
	require.Eventually(t, func() bool {
		data, _ := os.ReadFile(s.calls)
		return bytes.Count(data, []byte("\n")) > 200
	}, time.Minute, time.Millisecond)
	require.NoError(t, s.client.CancelWorkflow(t.Context(), run.GetID(), ""))
	require.Error(t, run.Get(t.Context(), nil))
	before, err := os.ReadFile(s.calls)
	require.NoError(t, err)
	sum, err := s.run(in)
	require.NoError(t, err)
	s.results(sum)
	after, err := os.ReadFile(s.calls)
	require.NoError(t, err)
	again := bytes.Count(after, []byte("\n")) - 2000
	require.LessOrEqual(t, again, 1, "of %d items that had run only the one under way runs again", bytes.Count(before, []byte("\n")))
}

func TestMap_ALargeMapRunsInSegments(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 2)
	in := gpumux.MapInput{Task: "call", Range: &gpumux.Range{End: 700}, Ladder: []string{"cpu"}, Output: "maps/l/results.jsonl", Chunk: 1}
	sum, err := s.run(in)
	require.NoError(t, err)
	require.EqualValues(t, 700, sum.Chunks)
	s.results(sum)
	s.calledOnce(700)
	d, err := s.client.DescribeWorkflowExecution(t.Context(), "map-call", "")
	require.NoError(t, err)
	require.Less(t, d.WorkflowExecutionInfo.HistoryLength, int64(4000), "the map's own history stays short")
	segment := s.client.GetWorkflow(t.Context(), "map-call.segment-1", "")
	require.NoError(t, segment.Get(t.Context(), nil))
	s.keep(segment)
}

// caller is somebody's own workflow.
func caller(ctx workflow.Context, n int) ([]int, error) {
	in := make([]int, n)
	for i := range in {
		in[i] = i
	}
	mapped, err := workflows.Map[int, int](ctx, gpumux.MapInput{Task: "double", Ladder: []string{"cpu"}}, in)
	if err != nil {
		return nil, err
	}
	return mapped.Values()
}

func TestMap_InsideAnyWorkflow(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 2)
	w := worker.New(s.client, "service", worker.Options{})
	w.RegisterWorkflowWithOptions(caller, workflow.RegisterOptions{Name: "caller"})
	require.NoError(t, w.Start())
	defer w.Stop()
	run, err := s.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "caller", TaskQueue: "service"}, "caller", 200)
	require.NoError(t, err)
	var got []int
	require.NoError(t, run.Get(t.Context(), &got))
	for i, v := range got {
		require.Equal(t, 2*i, v)
	}
}

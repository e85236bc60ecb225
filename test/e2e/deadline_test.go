package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/sdk/client"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workflows"
)

// A map over pools that nobody serves ends when its poolTimeout is over, and one with a
// pool that is served does not.
func TestDeadline_OfPoolsThatNobodyServes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 1)
	in := gpumux.MapInput{Task: "double", Items: items(1, 2, 3), Ladder: []string{"gpu"}, PoolTimeout: gpumux.Duration(5 * time.Second)}
	_, err := s.run(in)
	fault := workflows.FaultOf(err)
	require.NotNil(t, fault, "%v", err)
	require.Equal(t, gpumux.FaultTimeout, fault.Kind)
	require.Equal(t, "start", fault.Op)
	require.Equal(t, "no worker had a healthy device for gpu within the poolTimeout of 5s; 0 of 3 items are done", fault.Message)

	in.Ladder, in.Patience = []string{"gpu", "cpu"}, gpumux.Duration(10*time.Second)
	sum, err := s.run(in)
	require.NoError(t, err)
	require.EqualValues(t, 3, sum.Succeeded)
}

// A map ends likewise when its last worker goes, and the same map goes on with another.
func TestDeadline_OfAPoolThatIsLeft(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 1) // keeps the workflow
	leaves := s.worker("big", 1)
	in := gpumux.MapInput{
		Task: "paced", Range: &gpumux.Range{End: 600}, Ladder: []string{"big"}, Output: "maps/d/results.jsonl", Chunk: 20,
		PoolTimeout: gpumux.Duration(5 * time.Second),
	}
	run := s.start(in)
	require.Eventually(t, func() bool {
		var p gpumux.Progress
		answer, err := s.client.QueryWorkflow(t.Context(), run.GetID(), "", gpumux.ProgressQuery)
		require.NoError(t, err)
		require.NoError(t, answer.Get(&p))
		return p.Succeeded > 0
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, leaves.Stop(t.Context()))
	fault := workflows.FaultOf(run.Get(t.Context(), nil))
	require.NotNil(t, fault)
	require.Equal(t, gpumux.FaultTimeout, fault.Kind)

	s.worker("big", 1)
	sum, err := s.run(in)
	require.NoError(t, err)
	s.results(sum)
}

// A map that is late ends with its running items, keeps what is stored, and goes on under
// the same ID.
func TestDeadline_OfAMap(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 1)
	in := gpumux.MapInput{
		Task: "paced", Range: &gpumux.Range{End: 1000}, Ladder: []string{"cpu"}, Output: "maps/d/results.jsonl",
		MapTimeout: gpumux.Duration(3 * time.Second),
	}
	_, err := s.run(in)
	fault := workflows.FaultOf(err)
	require.NotNil(t, fault, "%v", err)
	require.Equal(t, gpumux.FaultTimeout, fault.Kind)
	require.Contains(t, fault.Message, "the map took longer than its mapTimeout of 3s; ")
	in.MapTimeout = 0
	sum, err := s.run(in)
	require.NoError(t, err)
	require.EqualValues(t, 1000, sum.Succeeded)
	s.results(sum)
}

// What any client may send besides an input is named: a second argument, and a signal.
func TestMap_RefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 1)
	in := gpumux.MapInput{Task: "double", Items: items(1, 2, 3), Ladder: []string{"cpu"}}
	start := func(args ...any) client.WorkflowRun {
		run, err := s.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: gpumux.Queue}, gpumux.MapWorkflow, args...)
		require.NoError(t, err)
		return run
	}
	fault := workflows.FaultOf(start(in, in).Get(t.Context(), nil))
	require.NotNil(t, fault)
	require.Equal(t, gpumux.FaultBadInput, fault.Kind)
	require.Contains(t, fault.Message, "second argument")

	in.Ladder = []string{"gpu"}
	run := start(in)
	details := func() string {
		answer, err := s.client.QueryWorkflow(t.Context(), run.GetID(), "", "__temporal_workflow_metadata")
		require.NoError(t, err)
		var told sdkpb.WorkflowMetadata
		require.NoError(t, answer.Get(&told))
		return told.GetCurrentDetails()
	}
	require.Eventually(t, func() bool { return strings.Contains(details(), "Waits for a slot of pool gpu\n") }, time.Minute, 20*time.Millisecond)
	require.NoError(t, s.client.SignalWorkflow(t.Context(), run.GetID(), "", "pause", nil))
	require.Eventually(t, func() bool {
		return strings.Contains(details(), "Signals that a map does not know, and ignores: pause\n")
	},
		time.Minute, 20*time.Millisecond)
	require.NoError(t, s.client.TerminateWorkflow(t.Context(), run.GetID(), "", "tested"))
}

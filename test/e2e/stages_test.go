package e2e

import (
	"encoding/json"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workflows"
)

// TestStages_Kinds has maps of several stages, one after the other on the same workers.
func TestStages_Kinds(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 2)
	s.worker("gpu", 1)
	s.each(map[string]func(*site){
		"ValuesGoOn": valuesGoOn, "AFailedItemDoesNotGoOn": failedStays, "ThousandsInSegments": stagedSegments, "InAWorkflow": stagesInAWorkflow,
	})
}

// staged is a map of stages, each task@pool.
func staged(in gpumux.MapInput, stages ...gpumux.Stage) gpumux.MapInput {
	in.Stages = stages
	return in
}

func on(pool, task string) gpumux.Stage { return gpumux.Stage{Task: task, Ladder: []string{pool}} }

func valuesGoOn(s *site) {
	sum, err := s.run(staged(gpumux.MapInput{Items: items(1, 2, 3), WithItem: true}, on("cpu", "double"), on("gpu", "text"), on("cpu", "echo")))
	require.NoError(s.t, err)
	require.EqualValues(s.t, 3, sum.Succeeded)
	require.Equal(s.t, "double > text > echo", sum.Task)
	for i, r := range s.results(sum) {
		require.Equal(s.t, strconv.Quote(strconv.Itoa(2*(i+1))+" "), string(r.Value))
		require.Equal(s.t, strconv.Itoa(i+1), string(r.Item), "the map's own item")
	}
	require.Len(s.t, sum.Stages, 3)
	for _, stage := range sum.Stages {
		require.EqualValues(s.t, 3, stage.Succeeded, stage.Task)
	}
}

func failedStays(s *site) {
	sum, err := s.run(staged(gpumux.MapInput{Range: &gpumux.Range{End: 30}}, on("cpu", "fail"), on("gpu", "half"), on("cpu", "call")))
	require.NoError(s.t, err)
	require.EqualValues(s.t, 10, sum.Succeeded)
	require.EqualValues(s.t, 20, sum.Failed)
	for i, r := range s.results(sum) {
		switch {
		case i%3 == 0:
			require.Equal(s.t, "fail", r.Fault.Task)
		case i%2 == 1:
			require.Equal(s.t, "half", r.Fault.Task)
		default:
			var call []json.RawMessage
			require.NoError(s.t, json.Unmarshal(r.Value, &call))
			require.Equal(s.t, strconv.Itoa(i/2)+".0", string(call[0]))
		}
	}
	require.EqualValues(s.t, 10, sum.Stages[0].Failed)
	require.EqualValues(s.t, 10, sum.Stages[1].Failed)
	require.EqualValues(s.t, 10, sum.Stages[2].Succeeded)
	require.Len(s.t, s.seen(), 10)
}

func stagedSegments(s *site) {
	in := staged(gpumux.MapInput{Range: &gpumux.Range{End: 1400}, Chunk: 4}, on("cpu", "double"), on("gpu", "echo"))
	sum, err := s.run(in)
	require.NoError(s.t, err)
	require.EqualValues(s.t, 1400, sum.Succeeded)
	for i, r := range s.results(sum) {
		require.Equal(s.t, strconv.Itoa(2*i), string(r.Value))
	}
}

// In a workflow the values of stages travel through its history. A task that nobody knows
// ends the map, also that of a later stage.
func stagesInAWorkflow(s *site) {
	service(s.t, s.client, map[string]any{"staged": func(ctx workflow.Context, in gpumux.MapInput) (workflows.Mapped[string], error) {
		return workflows.Map[int, string](ctx, in, []int{1, 2, 3, 4})
	}})
	start := func(in gpumux.MapInput) client.WorkflowRun {
		run, err := s.client.ExecuteWorkflow(s.t.Context(), client.StartWorkflowOptions{TaskQueue: "service"}, "staged", in)
		require.NoError(s.t, err)
		return run
	}
	var mapped workflows.Mapped[string]
	require.NoError(s.t, start(staged(gpumux.MapInput{}, on("cpu", "fail"), on("gpu", "double"), on("cpu", "text"))).Get(s.t.Context(), &mapped))
	for i, r := range mapped.Results {
		if i == 2 {
			require.Equal(s.t, "fail", r.Fault.Task)
			continue
		}
		require.Equal(s.t, strconv.Itoa(2*(i+1))+" ", r.Value)
	}
	require.Len(s.t, mapped.Summary.Stages, 3)

	err := start(staged(gpumux.MapInput{}, on("cpu", "double"), on("gpu", "nobody"))).Get(s.t.Context(), nil)
	require.Equal(s.t, gpumux.FaultBadInput, workflows.FaultOf(err).Kind)
	require.ErrorContains(s.t, err, "nobody")
}

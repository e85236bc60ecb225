package workflows_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workflows"
)

func TestRegistered_AnEmptyMapIsDone(t *testing.T) {
	env := run(t, &worker{}, gpumux.MapWorkflow, gpumux.MapInput{Task: "square", Items: []json.RawMessage{}})
	var s gpumux.Summary
	require.NoError(t, env.GetWorkflowResult(&s))
	require.Zero(t, s.Items)
}

func TestRegistered_StoredItemsAreNotRunAgain(t *testing.T) {
	w := &worker{stored: map[int64]bool{50: true}}
	for i := range int64(40) {
		w.stored[i] = true
	}
	env := run(t, w, gpumux.MapWorkflow, gpumux.MapInput{Task: "square", Source: "sources/x.jsonl", Output: "maps/x/1/results.jsonl"})
	var s gpumux.Summary
	require.NoError(t, env.GetWorkflowResult(&s))
	require.EqualValues(t, 100, s.Items)
	require.Equal(t, "file:///maps/x/1/results.jsonl", s.Output)
	for _, c := range w.chunks {
		require.Equal(t, "maps/x/1/results.jsonl.parts", c.Parts)
		for _, i := range w.indices(c.Work) {
			require.False(t, i < 40 || i == 50, "item %d is finished already", i)
		}
	}
}

// waiting is a map that runs for an hour where items raise.
var waiting = gpumux.MapInput{Task: "square", Source: "sources/x.jsonl", Attempts: 9, Backoff: gpumux.Duration(24 * time.Hour),
	MapTimeout: gpumux.Duration(time.Hour)}

// A map takes one argument, and a query or an update what it says; null is none.
func TestRegistered_RefusesFurtherArguments(t *testing.T) {
	in := gpumux.MapInput{Task: "square", Range: &gpumux.Range{End: 4}}
	env := run(t, &worker{}, gpumux.MapWorkflow, in, in)
	fault := workflows.FaultOf(env.GetWorkflowError())
	require.NotNil(t, fault)
	require.Equal(t, gpumux.FaultBadInput, fault.Kind)
	require.Contains(t, fault.Message, "second argument")
	require.NoError(t, run(t, &worker{}, gpumux.MapWorkflow, in, nil).GetWorkflowError())

	env = environment(20 * time.Second)
	(&worker{odd: raises}).register(env)
	refused := map[string]string{}
	env.RegisterDelayedCallback(func() {
		for name, args := range map[string][]any{gpumux.PauseUpdate: {"now"}, gpumux.ResumeUpdate: {nil}} {
			env.UpdateWorkflow(name, name, &testsuite.TestUpdateCallback{
				OnReject: func(err error) { refused[name] = err.Error() }, OnAccept: func() {}, OnComplete: func(any, error) {},
			}, args...)
		}
		_, err := env.QueryWorkflow(gpumux.ProgressQuery, "all")
		require.ErrorContains(t, err, "give no argument")
	}, time.Minute)
	env.ExecuteWorkflow(gpumux.MapWorkflow, waiting)
	require.NotNil(t, workflows.FaultOf(env.GetWorkflowError()), "it ends with its deadline")
	require.Len(t, refused, 1)
	require.Contains(t, refused[gpumux.PauseUpdate], "give no argument")
}

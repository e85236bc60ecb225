package workflowstest_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workflows"
	"github.com/gpumux/gpumux/workflows/workflowstest"
)

// shout is a workflow of a user.
func shout(ctx workflow.Context, words []string) ([]string, error) {
	mapped, err := workflows.Map[string, string](ctx, gpumux.MapInput{Task: "text:shout"}, words)
	if err != nil {
		return nil, err
	}
	return mapped.Values()
}

func environment() (*testsuite.TestWorkflowEnvironment, *workflowstest.Tasks) {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	return env, workflowstest.New(env)
}

func TestTasks_StandForAMap(t *testing.T) {
	env, tasks := environment()
	workflowstest.Handle(tasks, "text:shout", func(word string) (string, error) {
		if word == "" {
			return "", errors.New("nothing to shout")
		}
		return strings.ToUpper(word), nil
	})
	env.ExecuteWorkflow(shout, []string{"a", "b"})
	var loud []string
	require.NoError(t, env.GetWorkflowResult(&loud))
	require.Equal(t, []string{"A", "B"}, loud)
}

func TestTasks_FailAsWorkersDo(t *testing.T) {
	env, tasks := environment()
	workflowstest.Handle(tasks, "text:shout", func(word string) (string, error) { return "", errors.New("no " + word) })
	env.ExecuteWorkflow(shout, []string{"a"})
	require.ErrorContains(t, env.GetWorkflowError(), "item 0: task_error: no a")

	env, tasks = environment()
	workflowstest.Handle(tasks, "text:shout", func(word string) (string, error) { return "", &gpumux.Fault{Kind: gpumux.FaultDeviceOOM} })
	env.ExecuteWorkflow(shout, []string{"a"})
	require.Equal(t, gpumux.FaultDeviceOOM, workflows.FaultOf(env.GetWorkflowError()).Kind)

	env, tasks = environment()
	workflowstest.Handle(tasks, "other", func(int) (int, error) { return 0, nil })
	env.ExecuteWorkflow(shout, []string{"a"})
	require.ErrorContains(t, env.GetWorkflowError(), `no stand-in for task "text:shout"; there are other`)
	require.Equal(t, gpumux.FaultBadInput, workflows.FaultOf(env.GetWorkflowError()).Kind)

	env, tasks = environment()
	workflowstest.Handle(tasks, "text:shout", func(word int) (string, error) { return "", nil })
	env.ExecuteWorkflow(shout, []string{"a"})
	require.ErrorContains(t, env.GetWorkflowError(), `the item "a" does not fit int`)
}

func TestTasks_StandForASource(t *testing.T) {
	env, tasks := environment()
	workflowstest.Handle(tasks, "length", func(word string) (int, error) { return len(word), nil })
	require.NoError(t, tasks.Source("words.jsonl", "one", "three"))
	env.ExecuteWorkflow(workflows.MapSource, gpumux.MapInput{Task: "length", Source: "words.jsonl"})
	var s gpumux.Summary
	require.NoError(t, env.GetWorkflowResult(&s))
	require.EqualValues(t, 2, s.Succeeded)
	results := tasks.Results(s.Output)
	require.Len(t, results, 2)
	require.Equal(t, "5", string(results[1].Value))
	require.Equal(t, "words.jsonl", tasks.Inputs()[0].Source)

	env, tasks = environment()
	workflowstest.Handle(tasks, "count", func(row struct{ N int }) (int, error) {
		if row.N == 2 {
			return 0, errors.New("no 2")
		}
		return 10 * row.N, nil
	})
	workflowstest.Handle(tasks, "twice", func(n int) (int, error) { return 2 * n, nil })
	require.NoError(t, tasks.Source("rows.jsonl", map[string]any{"id": "a", "n": 1}, map[string]any{"id": "b", "n": 2}, map[string]any{"n": 3}))
	env.ExecuteWorkflow(func(ctx workflow.Context) (string, error) {
		first, err := workflows.MapSource(ctx, gpumux.MapInput{Task: "count", Source: "rows.jsonl", Key: "id", Output: "first.jsonl"})
		if err != nil {
			return "", err
		}
		second, err := workflows.MapSource(ctx, gpumux.MapInput{Task: "twice", Source: gpumux.ValuesOf(first.Output), WithItem: true})
		return second.Output, err
	})
	var output string
	require.NoError(t, env.GetWorkflowResult(&output))
	require.Equal(t, []gpumux.Result{
		{Index: 0, Value: json.RawMessage("20"), Key: json.RawMessage(`"a"`), Item: json.RawMessage("10")},
		{Index: 1, Value: json.RawMessage("60"), Key: json.RawMessage("null"), Item: json.RawMessage("30")},
	}, tasks.Results(output))

	env, tasks = environment()
	workflowstest.Handle(tasks, "twice", func(n int) (int, error) { return 2 * n, nil })
	env.ExecuteWorkflow(workflows.MapSource, gpumux.MapInput{Task: "twice", Range: &gpumux.Range{Start: 3, End: 5}})
	require.NoError(t, env.GetWorkflowResult(&s))
	require.Equal(t, "8", string(s.Results[1].Value))

	for column, want := range map[string]string{"n": `{"n":1,"id":"a"}`, "m": ""} {
		env, tasks = environment()
		workflowstest.Handle(tasks, "same", func(row json.RawMessage) (json.RawMessage, error) { return row, nil })
		require.NoError(t, tasks.Source("rows.parquet", map[string]any{"id": "a", "n": 1, "text": "long"}))
		env.ExecuteWorkflow(workflows.MapSource, gpumux.MapInput{Task: "same", Source: "rows.parquet", Columns: []string{column, "id"}})
		if want == "" {
			require.ErrorContains(t, env.GetWorkflowError(), `rows.parquet: columns: the first item has no field "m"; it has id, n, text`)
			continue
		}
		require.NoError(t, env.GetWorkflowResult(&s))
		require.Equal(t, want, string(tasks.Results(s.Output)[0].Value))
	}

	env, _ = environment()
	env.ExecuteWorkflow(workflows.MapSource, gpumux.MapInput{Task: "length", Source: "nowhere.jsonl"})
	require.ErrorContains(t, env.GetWorkflowError(), "make one with Tasks.Source")
}

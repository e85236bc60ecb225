package workflowstest_test

import (
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
	results, err := workflows.Map[string, string](ctx, "text:shout", words, workflows.Options{})
	if err != nil {
		return nil, err
	}
	return workflows.Values(results)
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
	workflowstest.Handle(tasks, "text:shout", func(word string) (string, error) { return "", &gpumux.Fault{Kind: gpumux.DeviceOOM} })
	env.ExecuteWorkflow(shout, []string{"a"})
	require.Equal(t, gpumux.DeviceOOM, workflows.FaultOf(env.GetWorkflowError()).Kind)

	env, tasks = environment()
	workflowstest.Handle(tasks, "other", func(int) (int, error) { return 0, nil })
	env.ExecuteWorkflow(shout, []string{"a"})
	require.ErrorContains(t, env.GetWorkflowError(), `no stand-in for task "text:shout"; there are other`)
	require.Equal(t, gpumux.BadInput, workflows.FaultOf(env.GetWorkflowError()).Kind)

	env, tasks = environment()
	workflowstest.Handle(tasks, "text:shout", func(word int) (string, error) { return "", nil })
	env.ExecuteWorkflow(shout, []string{"a"})
	require.ErrorContains(t, env.GetWorkflowError(), `the item "a" does not fit int`)
}

func TestTasks_AskForAMockOfMapSource(t *testing.T) {
	env, _ := environment()
	env.ExecuteWorkflow(workflows.MapSource, gpumux.MapInput{Task: "length", Source: "words.jsonl"})
	require.ErrorContains(t, env.GetWorkflowError(), "mock gpumux.Map with env.OnWorkflow")
}

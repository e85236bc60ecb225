package main

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/gpumux/gpumux/workflows/workflowstest"
)

// run runs the workflow with a worker that answers each text with what languages says,
// and fails what it does not know.
func run(t *testing.T, languages map[string]string, texts ...string) (map[string]int, error) {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	workflowstest.Handle(workflowstest.New(env), "text:language", func(text string) (string, error) {
		language, known := languages[text]
		if !known {
			return "", errors.New("no idea")
		}
		return language, nil
	})
	env.ExecuteWorkflow(Languages, texts)
	require.True(t, env.IsWorkflowCompleted())
	if err := env.GetWorkflowError(); err != nil {
		return nil, err
	}
	var count map[string]int
	require.NoError(t, env.GetWorkflowResult(&count))
	return count, nil
}

func TestLanguages_Counts(t *testing.T) {
	count, err := run(t, map[string]string{"hello": "English", "hola": "Spanish", "adiós": "Spanish"}, "hello", "hola", "adiós")
	require.NoError(t, err)
	require.Equal(t, map[string]int{"English": 1, "Spanish": 2}, count)
}

func TestLanguages_AFailedTextIsTheError(t *testing.T) {
	_, err := run(t, map[string]string{"hello": "English"}, "hello", "xyzzy")
	require.ErrorContains(t, err, "item 1: no idea (type: task_error, retryable: false)")
}

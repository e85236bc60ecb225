package main

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/testsuite"

	"github.com/gpumux/gpumux"
)

// run runs the workflow with a worker that answers each text with what languages says, and fails what it does not know.
func run(t *testing.T, languages map[string]string, texts ...string) (map[string]int, error) {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.RegisterActivityWithOptions(func(_ context.Context, chunk gpumux.Chunk) (gpumux.ChunkResult, error) {
		result := gpumux.ChunkResult{Next: chunk.End, Ran: chunk.End - chunk.Start}
		for i, item := range chunk.Items {
			var text string
			if err := json.Unmarshal(item, &text); err != nil {
				return result, err
			}
			r := gpumux.Result{Index: chunk.Start + int64(i)}
			if language, ok := languages[text]; ok {
				r.Value, _ = json.Marshal(language)
				result.Succeeded++
			} else {
				r.Fault = &gpumux.Fault{Kind: gpumux.TaskError, Message: "no idea"}
				result.Failed++
			}
			result.Results = append(result.Results, r)
		}
		if chunk.Task != "text:language" {
			return result, errors.New("another task: " + chunk.Task)
		}
		return result, nil
	}, activity.RegisterOptions{Name: gpumux.RunChunk})
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
	require.ErrorContains(t, err, "item 1: task_error: no idea")
}

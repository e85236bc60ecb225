package workflows_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/workflows"
	"github.com/gpumux/gpumux/workflows/workflowstest"
)

// decoded is what the JSON of a map came to.
type decoded struct {
	Keys  []string
	Texts []string
}

// decoding is a workflow of a user that decodes all that is JSON. The target lint has
// workflowcheck look at it, which takes encoding/json for nondeterministic.
func decoding(ctx workflow.Context, in gpumux.MapInput, items []map[string]any) (all decoded, err error) {
	mapped, err := workflows.Map[map[string]any, int](ctx, in, items)
	if err != nil {
		return all, err
	}
	for _, r := range mapped.Results {
		key, err := workflows.Decode[string](r.Key)
		if err != nil {
			return all, err
		}
		item, err := workflows.Decode[struct{ Text string }](r.Item)
		if err != nil {
			return all, err
		}
		all.Keys, all.Texts = append(all.Keys, key), append(all.Texts, item.Text)
	}
	return all, nil
}

func TestDecode_KeyAndItem(t *testing.T) {
	env := environment(20 * time.Second)
	tasks := workflowstest.New(env)
	workflowstest.Handle(tasks, "length", func(item map[string]any) (int, error) { return len(item["text"].(string)), nil })
	env.ExecuteWorkflow(decoding, gpumux.MapInput{Task: "length", Key: "id", WithItem: true},
		[]map[string]any{{"id": "a", "text": "one"}, {"id": "b", "text": "three"}})
	var all decoded
	require.NoError(t, env.GetWorkflowResult(&all))
	require.Equal(t, decoded{[]string{"a", "b"}, []string{"one", "three"}}, all)
}

func TestDecode_WhatDoesNotFitIsAFault(t *testing.T) {
	_, err := workflows.Decode[int](json.RawMessage(`"a"`))
	var fault *gpumux.Fault
	require.ErrorAs(t, err, &fault)
	require.Equal(t, gpumux.FaultTaskError, fault.Kind)
	require.ErrorContains(t, err, `the value "a" does not fit int: json: cannot unmarshal string into Go value of type int; let the task return`)
	for _, none := range []json.RawMessage{nil, json.RawMessage("null")} {
		n, err := workflows.Decode[int](none)
		require.NoError(t, err)
		require.Zero(t, n)
	}
}

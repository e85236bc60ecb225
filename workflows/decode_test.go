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
	Sum   int
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
	all.Sum, err = workflows.Reduced[int](mapped.Summary)
	return all, err
}

func TestDecode_KeyItemAndReduced(t *testing.T) {
	env := environment(20 * time.Second)
	tasks := workflowstest.New(env)
	workflowstest.Handle(tasks, "length", func(item map[string]any) (int, error) { return len(item["text"].(string)), nil })
	workflowstest.Handle(tasks, "add", func(pair [2]int) (int, error) { return pair[0] + pair[1], nil })
	env.ExecuteWorkflow(decoding, gpumux.MapInput{Task: "length", Key: "id", WithItem: true, Reduce: "add"},
		[]map[string]any{{"id": "a", "text": "one"}, {"id": "b", "text": "three"}})
	var all decoded
	require.NoError(t, env.GetWorkflowResult(&all))
	require.Equal(t, decoded{[]string{"a", "b"}, []string{"one", "three"}, 8}, all)
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

func TestReduced_SaysWhyThereIsNone(t *testing.T) {
	for want, summary := range map[string]gpumux.Summary{
		"reduce add at item 3: no number (type: task_error":                     {ReduceFault: &gpumux.Fault{Kind: gpumux.FaultTaskError, Message: "reduce add at item 3: no number"}},
		"has more than 512KiB; it is at s3://r/reduced.json (type: bad_input":   {ReducedOutput: "s3://r/reduced.json"},
		"the input of the map names no reduce (type: bad_input":                 {},
		"the value 1.5 does not fit int: json: cannot unmarshal number 1.5 int": {Reduced: json.RawMessage("1.5")},
	} {
		_, err := workflows.Reduced[int](summary)
		require.ErrorContains(t, err, want)
		require.ErrorAs(t, err, new(*gpumux.Fault))
	}
}

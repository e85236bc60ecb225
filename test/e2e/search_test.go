package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/test/devservertest"
)

func TestStarter_MapsCanBeSearchedForWhereTheServerCan(t *testing.T) {
	s := newStage(t)
	s.Starter = &starter.Starter{Client: devservertest.Dial(t, devservertest.Run(t), "default")} // the attributes are those of this namespace
	t.Cleanup(s.Starter.Close)
	s.work()
	for _, task := range []string{"odd", "double"} {
		s.done(s.over(task, 10))
	}
	raw, err := s.Client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "raw", TaskQueue: gpumux.Queue}, gpumux.MapWorkflow,
		map[string]any{"task": "step:odd", "items": []int{0, 1, 2}, "ladder": []string{"cpu"}})
	require.NoError(t, err)
	require.NoError(t, raw.Get(t.Context(), nil))
	found := func(query string) (tasks []string) {
		answer, err := s.Client.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{Namespace: "default", Query: query})
		require.NoError(t, err)
		for _, e := range answer.GetExecutions() {
			tasks = append(tasks, string(e.GetSearchAttributes().GetIndexedFields()[names.SearchTask].GetData())+
				string(e.GetSearchAttributes().GetIndexedFields()[names.SearchFailed].GetData()))
		}
		return tasks
	}
	for query, want := range map[string]string{
		"GpumuxFailed > 0 AND WorkflowId != 'raw'": `["step:odd"5]`, "WorkflowId = 'raw' AND GpumuxTask = 'step:odd'": `["step:odd"1]`, "GpumuxTask = 'step:double'": `["step:double"0]`,
	} {
		s.until(query, func() bool { return fmt.Sprint(found(query)) == want })
	}
}

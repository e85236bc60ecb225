package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/cmd/gpumux/devserver"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/test/devservertest"
)

func TestStarter_MapsCanBeSearchedForWhereTheServerCan(t *testing.T) {
	s := newStage(t)
	server := devservertest.Start(t, devserver.Options{Headless: true})
	s.Starter = &starter.Starter{Client: devservertest.Dial(t, server, "default")}
	t.Cleanup(s.Starter.Close)
	s.work()
	for _, task := range []string{"odd", "double"} {
		_, err := s.wait(s.start(s.over(task, 10)))
		require.NoError(t, err)
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

// temporal workflow metadata and the Web UI show what a map answers to.
func TestMap_DescribesItsQueryAndUpdates(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker("cpu", 1)
	run := s.start(gpumux.MapInput{Task: "double", Items: items(1), Ladder: []string{"cpu"}})
	require.NoError(t, run.Get(t.Context(), nil))
	answer, err := s.client.QueryWorkflow(t.Context(), run.GetID(), "", "__temporal_workflow_metadata")
	require.NoError(t, err)
	var told sdkpb.WorkflowMetadata
	require.NoError(t, answer.Get(&told))
	described := map[string]string{}
	for _, d := range append(told.GetDefinition().GetQueryDefinitions(), told.GetDefinition().GetUpdateDefinitions()...) {
		described[d.GetName()] = d.GetDescription()
	}
	for _, name := range []string{gpumux.ProgressQuery, gpumux.PauseUpdate, gpumux.ResumeUpdate, gpumux.WindowUpdate} {
		require.NotEmpty(t, described[name], name)
	}
}

// A worker that is one of a deployment gets the work of its version, and its maps stay
// with it.
func TestWorker_OfADeployment(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.config("cpu", 1)
	c.Temporal.Deployment, c.Temporal.Build = "gpus", "v7"
	s.serve(c)
	deployment := s.client.WorkerDeploymentClient().GetHandle("gpus")
	require.Eventually(t, func() bool {
		_, err := deployment.SetCurrentVersion(t.Context(), client.WorkerDeploymentSetCurrentVersionOptions{BuildID: "v7"})
		return err == nil
	}, time.Minute, 100*time.Millisecond)
	run := s.start(gpumux.MapInput{Task: "double", Items: items(1, 2), Ladder: []string{"cpu"}})
	var sum gpumux.Summary
	require.NoError(t, run.Get(t.Context(), &sum))
	require.EqualValues(t, 2, sum.Succeeded)
	d, err := s.client.DescribeWorkflowExecution(t.Context(), run.GetID(), "")
	require.NoError(t, err)
	versioning := d.GetWorkflowExecutionInfo().GetVersioningInfo()
	require.Equal(t, enums.VERSIONING_BEHAVIOR_PINNED, versioning.GetBehavior())
	require.Equal(t, "gpus", versioning.GetDeploymentVersion().GetDeploymentName())
	require.Equal(t, "v7", versioning.GetDeploymentVersion().GetBuildId())
}

package devserver

import (
	"testing"

	"github.com/stretchr/testify/require"
	computepb "go.temporal.io/api/compute/v1"
	deploymentpb "go.temporal.io/api/deployment/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
)

// The server has no client of any cloud (go.work), so it starts no workers there: it says
// so, and other deployments are as with any server.
func TestDeployments_WhoseWorkersTheServerWouldStart(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	c := dial(t, s.Address())
	service, ctx := c.WorkflowService(), t.Context()
	_, err := service.CreateWorkerDeployment(ctx, &workflowservice.CreateWorkerDeploymentRequest{Namespace: client.DefaultNamespace, DeploymentName: "d"})
	require.NoError(t, err)
	version := &deploymentpb.WorkerDeploymentVersion{DeploymentName: "d", BuildId: "1"}
	_, err = service.CreateWorkerDeploymentVersion(ctx, &workflowservice.CreateWorkerDeploymentVersionRequest{Namespace: client.DefaultNamespace, DeploymentVersion: version})
	require.NoError(t, err)
	described, err := service.DescribeWorkerDeploymentVersion(ctx, &workflowservice.DescribeWorkerDeploymentVersionRequest{Namespace: client.DefaultNamespace, DeploymentVersion: version})
	require.NoError(t, err)
	require.Nil(t, described.WorkerDeploymentVersionInfo.ComputeConfig)

	group := &computepb.ComputeConfigScalingGroup{Provider: &computepb.ComputeProvider{Type: "aws-lambda"}}
	_, err = service.ValidateWorkerDeploymentVersionComputeConfig(ctx, &workflowservice.ValidateWorkerDeploymentVersionComputeConfigRequest{
		Namespace: client.DefaultNamespace, DeploymentVersion: version,
		ComputeConfigScalingGroups: map[string]*computepb.ComputeConfigScalingGroupUpdate{"g": {ScalingGroup: group}},
	})
	var refused *serviceerror.InvalidArgument
	require.ErrorAs(t, err, &refused)
	require.ErrorContains(t, err, "this server starts no workers")

	_, err = service.DeleteWorkerDeploymentVersion(ctx, &workflowservice.DeleteWorkerDeploymentVersionRequest{Namespace: client.DefaultNamespace, DeploymentVersion: version})
	require.NoError(t, err)
}

// Package client says of every version of a worker deployment that nothing starts its
// workers.
package client

import (
	"context"

	deploymentpb "go.temporal.io/api/deployment/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/auto-scaled-workers/wci/workflow/iface"
	"go.temporal.io/server/common/namespace"
	"go.uber.org/fx"
)

var Module = fx.Provide(func() Client { return Client{} })

var errUnsupported = serviceerror.NewUnimplemented("this server starts no workers: leave the compute configuration out")

type Client struct{}

type version = *deploymentpb.WorkerDeploymentVersion

func (Client) DescribeWorkerControllerInstance(context.Context, *namespace.Namespace, version) (*iface.QueryDescribeWorkerControllerInstanceResponse, []byte, error) {
	return nil, nil, serviceerror.NewNotFound("this server starts no workers")
}

func (Client) UpdateWorkerControllerInstance(context.Context, *namespace.Namespace, version, []byte, string, map[string]iface.ScalingGroupSpecUpdate, []string) (*iface.UpdateWorkerControllerInstanceResponse, error) {
	return nil, errUnsupported
}

func (Client) ValidateWorkerControllerInstanceSpec(context.Context, *namespace.Namespace, version, string, map[string]iface.ScalingGroupSpecUpdate, []string) error {
	return errUnsupported
}

func (Client) DeleteWorkerControllerInstance(context.Context, *namespace.Namespace, version, string) error {
	return nil
}

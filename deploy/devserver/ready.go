package devserver

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/api/namespace/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	readyTimeout  = 30 * time.Second
	readyInterval = 5 * time.Millisecond
)

// waitReady returns when the frontend answers for the namespace, and sets its retention: an older file may have another.
func waitReady(ctx context.Context, address string, t token, name string, retention time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("no answer within %s", readyTimeout))
	defer cancel()
	if t != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", t.header())
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", address, err)
	}
	defer conn.Close()
	client := workflowservice.NewWorkflowServiceClient(conn)
	described, err := describe(ctx, client, name)
	if err != nil {
		return fmt.Errorf("wait for namespace %s at %s: %w", name, address, err)
	}
	if described.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration() == retention {
		return nil
	}
	_, err = client.UpdateNamespace(ctx, &workflowservice.UpdateNamespaceRequest{
		Namespace: name,
		Config:    &namespace.NamespaceConfig{WorkflowExecutionRetentionTtl: durationpb.New(retention)},
	})
	if err != nil {
		return fmt.Errorf("set retention of namespace %s to %s: %w", name, retention, err)
	}
	return nil
}

func describe(ctx context.Context, client workflowservice.WorkflowServiceClient, name string) (*workflowservice.DescribeNamespaceResponse, error) {
	request := &workflowservice.DescribeNamespaceRequest{Namespace: name}
	for {
		answer, err := client.DescribeNamespace(ctx, request, grpc.WaitForReady(true))
		if err == nil {
			return answer, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w (last answer: %w)", context.Cause(ctx), err)
		case <-time.After(readyInterval):
		}
	}
}

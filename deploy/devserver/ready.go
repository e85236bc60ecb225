package devserver

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

const (
	readyTimeout  = 30 * time.Second
	readyInterval = 5 * time.Millisecond
)

// waitReady returns when the frontend answers for the namespace.
func waitReady(ctx context.Context, address string, t token) error {
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
	request := &workflowservice.DescribeNamespaceRequest{Namespace: namespace}
	for {
		_, err := client.DescribeNamespace(ctx, request, grpc.WaitForReady(true))
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for namespace %s at %s: %w (last answer: %w)", namespace, address, context.Cause(ctx), err)
		case <-time.After(readyInterval):
		}
	}
}

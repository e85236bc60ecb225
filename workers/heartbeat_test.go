package workers

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// A heartbeat outlasts a server that is away for longer than the SDK waits: it is answered once the server is back.
func TestPatient_WaitsForAServerThatIsAway(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithChainUnaryInterceptor(patient))
	require.NoError(t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	answered := make(chan error, 1)
	go func() {
		answered <- conn.Invoke(ctx, workflowservice.WorkflowService_RecordActivityTaskHeartbeat_FullMethodName,
			&workflowservice.RecordActivityTaskHeartbeatRequest{}, &workflowservice.RecordActivityTaskHeartbeatResponse{})
	}()
	<-ctx.Done()
	listener, err = net.Listen("tcp", address)
	require.NoError(t, err)
	server := grpc.NewServer()
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	require.Equal(t, codes.Unimplemented, status.Code(<-answered), "the server's own answer")
}

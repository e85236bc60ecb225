package workers

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The end of an activity is reported until the server answers, whatever time the SDK
// gives it, or until the worker stops.
func TestPatient_ReportsTheEndOfAnActivityUntilTheServerAnswers(t *testing.T) {
	w := &Worker{}
	w.life, w.end = context.WithCancel(t.Context())
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	<-ctx.Done()
	tries := 0
	away := func(answered int, then func()) grpc.UnaryInvoker {
		tries = 0
		return func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
			if tries++; tries < answered {
				then()
				return status.Error(codes.Unavailable, "shard status unknown")
			}
			require.NoError(t, ctx.Err())
			return status.Error(codes.NotFound, "workflow not found")
		}
	}
	report := func(call grpc.UnaryInvoker) codes.Code {
		return status.Code(w.patient(ctx, workflowservice.WorkflowService_RespondActivityTaskCompleted_FullMethodName, nil, nil, nil, call))
	}
	require.Equal(t, codes.NotFound, report(away(3, func() {})))
	require.Equal(t, 3, tries)
	require.Equal(t, codes.Unavailable, report(away(3, w.end)))
	require.Equal(t, 1, tries)
}

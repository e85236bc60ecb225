package devserver

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"go.temporal.io/server/api/historyservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

const secret = "a-token-of-a-test"

// caller is a client with the settings of an environment, as any program of Temporal's
// has them.
func caller(t *testing.T, s *Server, env ...string) (client.Client, error) {
	t.Helper()
	for i := 0; i < len(env); i += 2 {
		t.Setenv(env[i], env[i+1])
	}
	o, err := envconfig.LoadDefaultClientOptions()
	require.NoError(t, err)
	o.HostPort, o.Logger = s.Address(), log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	c, err := client.DialContext(t.Context(), o)
	if err == nil {
		t.Cleanup(c.Close)
	}
	return c, err
}

func TestToken_KeepsOthersOut(t *testing.T) {
	s := start(t, Options{Token: secret})
	var denied *serviceerror.PermissionDenied
	for _, value := range []string{"", "Bearer wrong", secret, "Bearer " + secret + " "} {
		if value != "" {
			t.Setenv("TEMPORAL_GRPC_META_AUTHORIZATION", value)
		}
		_, err := caller(t, s)
		require.ErrorAs(t, err, &denied, value)
	}
	conn, err := grpc.NewClient(s.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	_, err = workflowservice.NewWorkflowServiceClient(conn).StartWorkflowExecution(t.Context(),
		&workflowservice.StartWorkflowExecutionRequest{Namespace: "default", WorkflowId: "w"})
	require.ErrorContains(t, err, "Request unauthorized.")
}

func TestToken_LetsItsOwnersIn(t *testing.T) {
	s := start(t, Options{Token: secret, Data: t.TempDir()})
	c, err := caller(t, s, "TEMPORAL_GRPC_META_AUTHORIZATION", "Bearer "+secret)
	require.NoError(t, err)
	w := worker.New(c, "q", worker.Options{})
	w.RegisterWorkflowWithOptions(func(ctx workflow.Context) (int, error) {
		return 7, workflow.Sleep(ctx, time.Millisecond)
	}, workflow.RegisterOptions{Name: "seven"})
	require.NoError(t, w.Start())
	defer w.Stop()
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "w", TaskQueue: "q"}, "seven")
	require.NoError(t, err)
	var got int
	require.NoError(t, run.Get(t.Context(), &got))
	require.Equal(t, 7, got)
}

// The services behind the frontend ask for no token, and any user can find their ports.
func TestToken_TheServicesTakeNobodyElse(t *testing.T) {
	s := start(t, Options{Token: secret, Headless: true})
	refused := 0
	for _, address := range ownAddresses(t) {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		require.NoError(t, err)
		defer conn.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err = historyservice.NewHistoryServiceClient(conn).DeepHealthCheck(ctx, &historyservice.DeepHealthCheckRequest{})
		require.Error(t, err, address)
		if address == s.Address() {
			continue
		}
		_, err = workflowservice.NewWorkflowServiceClient(conn).ListNamespaces(ctx, &workflowservice.ListNamespacesRequest{})
		// On a busy machine the connection may not even be closed in time.
		require.Contains(t, []codes.Code{codes.Unavailable, codes.DeadlineExceeded}, status.Code(err), "%s: %v", address, err)
		refused++
	}
	require.Equal(t, 4, refused)
}

func TestFolder_NobodyElseReadsIt(t *testing.T) {
	data := filepath.Join(t.TempDir(), "new", "data")
	s, err := Start(t.Context(), Options{Data: data})
	require.NoError(t, err)
	seen := 0
	check := func() {
		require.NoError(t, filepath.WalkDir(data, func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			require.NoError(t, err)
			info, err := entry.Info()
			require.NoError(t, err)
			require.Zero(t, info.Mode().Perm()&0o077, "%s is %s", path, info.Mode())
			seen++
			return nil
		}))
	}
	check()
	require.NoError(t, s.Stop())
	require.GreaterOrEqual(t, seen, 3, "folder, database and its log")
	// One that an earlier release wrote is closed as well.
	data = t.TempDir()
	require.NoError(t, os.Chmod(data, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(data, databaseName), nil, 0o644))
	s, err = Start(t.Context(), Options{Data: data})
	require.NoError(t, err)
	check()
	require.NoError(t, s.Stop())
}

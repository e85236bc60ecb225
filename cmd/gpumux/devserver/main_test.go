package devserver

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"go.uber.org/zap"

	"github.com/gpumux/gpumux"
)

// childFolder makes the test binary a server on that folder, for tests that kill one.
const childFolder = "GPUMUX_TEST_SERVER_FOLDER"

func TestMain(m *testing.M) {
	if folder := os.Getenv(childFolder); folder != "" {
		runChild(folder)
	}
	os.Exit(m.Run())
}

// runChild serves until it is killed or its standard input ends. It prints the address
// when the server is ready.
func runChild(folder string) {
	logger := zap.Must(zap.NewDevelopment()) // everything that passes goes to standard error
	s, err := Start(context.Background(), Options{Data: folder, Log: logger})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(s.Address())
	os.Stdin.Read(make([]byte, 1))
	if err := s.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func childCommand(t *testing.T, folder string) *exec.Cmd {
	t.Helper()
	binary, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Env = append(os.Environ(), childFolder+"="+folder)
	return cmd
}

// start starts a server on free ports and stops it with the test.
func start(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	return s
}

func dial(t testing.TB, address string) client.Client {
	t.Helper()
	c, err := client.Dial(client.Options{
		HostPort:                address,
		Logger:                  log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
		WorkerHeartbeatInterval: time.Second,
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// signaled ends when it gets the signal "go" and returns what came with it.
func signaled(ctx workflow.Context) (string, error) {
	var text string
	workflow.GetSignalChannel(ctx, "go").Receive(ctx, &text)
	return text, nil
}

// oneActivity is the workflow of the benchmarks.
func oneActivity(ctx workflow.Context) (string, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: time.Minute, DisableEagerExecution: true})
	var text string
	err := workflow.ExecuteActivity(ctx, echoActivity, "done").Get(ctx, &text)
	return text, err
}

func echoActivity(_ context.Context, text string) (string, error) { return text, nil }

// longActivity runs an activity without heartbeats that lasts until it is cancelled.
func longActivity(ctx workflow.Context) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Hour, WaitForCancellation: true,
	})
	return workflow.ExecuteActivity(ctx, "long").Get(ctx, nil)
}

// work starts a worker for the workflows above. started is closed when the long activity
// runs.
func work(t testing.TB, c client.Client) (started chan struct{}) {
	t.Helper()
	w := worker.New(c, gpumux.Queue, worker.Options{})
	w.RegisterWorkflow(signaled)
	w.RegisterWorkflow(oneActivity)
	w.RegisterWorkflow(longActivity)
	w.RegisterActivity(echoActivity)
	started = make(chan struct{})
	w.RegisterActivityWithOptions(func(ctx context.Context) error {
		close(started)
		<-ctx.Done()
		return ctx.Err()
	}, activity.RegisterOptions{Name: "long"})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	return started
}

package devserver

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/server/common/log/tag"
	"go.temporal.io/server/common/primitives"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/gpumux/gpumux"
)

func TestStart_TakenPort(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	port := portOf(taken)
	for words, o := range map[string]Options{"give another port for the server": {Port: port}, "give another port for the Web UI": {UIPort: port}} {
		o.Data = filepath.Join(t.TempDir(), "data")
		_, err := Start(t.Context(), o)
		require.ErrorContains(t, err, "port "+strconv.Itoa(port)+" on 127.0.0.1 is in use")
		require.ErrorContains(t, err, words)
		require.NoDirExists(t, o.Data, "nothing may start before the ports are known to be free")
	}
}

// The port is taken after the check and before the server binds it.
func TestNewTemporal_TakenPortIsAnError(t *testing.T) {
	t.Parallel()
	ports, err := choosePorts(0, false)
	require.NoError(t, err)
	for _, service := range []primitives.ServiceName{primitives.FrontendService, primitives.HistoryService, primitives.WorkerService} {
		taken, err := net.Listen("tcp4", "127.0.0.1:0")
		require.NoError(t, err)
		defer taken.Close()
		free := ports[service]
		ports[service] = portOf(taken)
		core, logs := observer.New(zapcore.DebugLevel)
		_, err = (&Server{ports: ports, bind: loopback, database: memoryDatabase(), log: newQuietLog(zap.New(core))}).newTemporal(false)
		require.ErrorContains(t, err, "address already in use")
		require.Empty(t, logs.All(), "the error says it")
		require.True(t, isPortTaken(err), "%v", err)
		ports[service] = free
	}
}

func TestStart_GivenPorts(t *testing.T) {
	t.Parallel()
	port, err := freePort()
	require.NoError(t, err)
	uiPort, err := freePort()
	require.NoError(t, err)
	s := start(t, Options{Port: port, UIPort: uiPort})
	require.Equal(t, "127.0.0.1:"+strconv.Itoa(port), s.Address())
	require.Equal(t, "http://127.0.0.1:"+strconv.Itoa(uiPort), s.UI())

	_, err = Start(t.Context(), Options{Port: port, Headless: true})
	require.ErrorContains(t, err, "is in use")
	require.NoError(t, s.Stop())
	require.NoError(t, checkPort(loopback, port))
	require.NoError(t, checkPort(loopback, uiPort))
}

func TestStart_ReadyAtOnce(t *testing.T) {
	t.Parallel()
	for name, data := range map[string]string{"memory": "", "file": t.TempDir()} {
		t.Run(name, func(t *testing.T) {
			s := start(t, Options{Data: data, Headless: true})
			require.Empty(t, s.UI())
			c := dial(t, s.Address())
			work(t, c)
			require.Equal(t, "done", execute(t, c, "w", oneActivity))
			require.NoError(t, s.Stop())
		})
	}
}

func TestStop_Repeatable(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	var stopping sync.WaitGroup
	for range 3 {
		stopping.Go(func() { assert.NoError(t, s.Stop()) })
	}
	stopping.Wait()
	require.NoError(t, s.Stop())
	for _, address := range []string{s.Address(), s.UI()[len("http://"):]} {
		_, err := net.Dial("tcp4", address)
		require.Error(t, err)
	}
}

// A person's terminal shows nothing of a server that does its work, also when it stops
// under open polls.
func TestLog_QuietInUse(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.DebugLevel)
	s := start(t, Options{Data: t.TempDir(), Log: zap.New(core)})
	c := dial(t, s.Address())
	work(t, c)
	require.Equal(t, "done", execute(t, c, "w", oneActivity))
	require.NoError(t, s.Stop())
	require.Empty(t, logs.All())
}

func TestLog_PassesWarnings(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.DebugLevel)
	q := newQuietLog(zap.New(core))
	q.Info("info")
	q.Warn("warning")
	q.silent.Store(true)
	q.Error("error while stopping")
	require.Len(t, logs.All(), 1)
	require.Equal(t, "warning", logs.All()[0].Message)

	// A caller that has gone, as a client after Ctrl-C, is no trouble of the server.
	core, logs = observer.New(zapcore.DebugLevel)
	q = newQuietLog(zap.New(core))
	q.Error("Update workflow execution operation failed", tag.Error(serviceerror.NewCanceled(context.Canceled.Error())))
	q.Error("Persistent store operation failure", tag.Error(errors.New("disk full")))
	require.Len(t, logs.All(), 1)

	core, logs = observer.New(zapcore.ErrorLevel)
	q = newQuietLog(zap.New(core))
	q.Warn("below the logger's own level")
	require.Empty(t, logs.All())
}

// A client that waits hears of every end, however soon after the start it comes.
func TestServer_WaitersDoNotStall(t *testing.T) {
	c := dial(t, start(t, Options{Headless: true}).Address())
	work(t, c)
	for i := range 150 {
		run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: strconv.Itoa(i), TaskQueue: gpumux.Queue}, oneActivity)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second) // less than the server's own long poll
		require.NoError(t, run.Get(ctx, nil))
		cancel()
	}
}

// Cancellation reaches an activity that never heartbeats; without the worker commands it
// would not before its timeout.
func TestServer_CancelsWithoutHeartbeat(t *testing.T) {
	t.Parallel()
	c := dial(t, start(t, Options{Headless: true}).Address())
	started := work(t, c)
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "w", TaskQueue: gpumux.Queue}, longActivity)
	require.NoError(t, err)
	<-started
	began := time.Now()
	require.NoError(t, c.CancelWorkflow(t.Context(), "w", ""))
	var canceled *temporal.CanceledError
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.ErrorAs(t, run.Get(ctx, nil), &canceled, "the activity has an hour, so that nothing else ends it")
	t.Log("cancelled after", time.Since(began))
}

func execute(t testing.TB, c client.Client, id string, workflow any) string {
	t.Helper()
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: gpumux.Queue}, workflow)
	require.NoError(t, err)
	var text string
	require.NoError(t, run.Get(t.Context(), &text))
	return text
}

// Closed workflows stay for a month. Lists that come together are answered, not refused
// for their rate: 10 a second is what the server allows by default.
func TestServer_KeepsAndLists(t *testing.T) {
	t.Parallel()
	c := dial(t, start(t, Options{Headless: true}).Address())
	answer, err := c.WorkflowService().DescribeNamespace(t.Context(), &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
	require.NoError(t, err)
	require.Equal(t, 30*24*time.Hour, answer.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration())
	for range 60 {
		_, err := c.WorkflowService().ListWorkflowExecutions(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{Namespace: namespace})
		require.NoError(t, err)
	}
}

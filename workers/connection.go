package workers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/record"
	"github.com/gpumux/gpumux/internal/store"
)

const dialLimit = 15 * time.Second

func (w *Worker) dial(ctx context.Context, o client.Options) (err error) {
	w.namespace = o.Namespace
	o.Identity = w.identity
	o.Logger = quiet(w.log.Named("temporal"))
	if w.config.Metrics != "" {
		o.MetricsHandler = w.metrics.sdk
	}
	// The connection is back within a second of the server.
	reconnect := grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: 5 * time.Second}
	reconnect.Backoff.BaseDelay, reconnect.Backoff.MaxDelay = 200*time.Millisecond, time.Second
	// First, so that a report is tried again while the codec is away, too.
	o.ConnectionOptions.DialOptions = append([]grpc.DialOption{grpc.WithChainUnaryInterceptor(w.patient), grpc.WithConnectParams(reconnect)},
		o.ConnectionOptions.DialOptions...)
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	if w.client, err = client.DialContext(ctx, o); err != nil {
		return fmt.Errorf("reach Temporal at %s (namespace %s): %w; start one with gpumux dev, or set temporal.connect, temporal.address or TEMPORAL_ADDRESS",
			o.HostPort, o.Namespace, err)
	}
	return nil
}

const (
	// reportLimit bounds one try to report the end of an activity; reportPause is the pause
	// before the next try.
	reportLimit = 10 * time.Second
	reportPause = 500 * time.Millisecond
)

// patient reports the end of an activity until the server answers or the worker stops.
// The SDK gives up after ten seconds, and a finished chunk would run again. Polls wait
// for the server.
func (w *Worker) patient(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	switch method {
	case workflowservice.WorkflowService_RespondActivityTaskCompleted_FullMethodName,
		workflowservice.WorkflowService_RespondActivityTaskFailed_FullMethodName,
		workflowservice.WorkflowService_RespondActivityTaskCanceled_FullMethodName:
	case workflowservice.WorkflowService_PollActivityTaskQueue_FullMethodName, workflowservice.WorkflowService_PollWorkflowTaskQueue_FullMethodName:
		return call(ctx, method, req, reply, cc, append(opts, grpc.WaitForReady(true))...) // a failed one is made again after up to 10 s
	default:
		return call(ctx, method, req, reply, cc, opts...)
	}
	for {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportLimit)
		err := call(limited, method, req, reply, cc, opts...)
		cancel()
		if code := status.Code(err); code != codes.Unavailable && code != codes.DeadlineExceeded {
			return err
		}
		select {
		case <-time.After(reportPause):
		case <-w.life.Done():
			return err
		}
	}
}

// connect opens the store and the connection to Temporal, where the worker is not alone.
func (w *Worker) connect(ctx context.Context) (err error) {
	if w.o.Alone {
		return nil
	}
	var o client.Options
	var named fleet.File
	if w.o.Client == nil {
		t := w.config.Temporal
		if o, named, err = fleet.ClientOptions(fleet.Options{File: t.Connect, Address: t.Address, Namespace: t.Namespace, Codec: w.o.Codec}); err != nil {
			return err
		}
	}
	if w.config.Store != "" || named.Store == "" {
		named = fleet.File{Store: w.storeURL}
	}
	w.storeURL = named.Store
	if w.store, err = store.OpenSame(ctx, w.storeURL, named.StoreID); err != nil {
		return err
	}
	w.args.store = w.store
	w.recorders = record.New(w.store)
	w.recorders.Failed = w.metrics.store.Inc
	if w.client = w.o.Client; w.client != nil {
		w.namespace = w.config.Temporal.Namespace
		return nil
	}
	return w.dial(ctx, o)
}

// RunDirect runs items in a pool's slots: see activities.Pool.RunDirect.
func (w *Worker) RunDirect(ctx context.Context, pool string, chunk contract.Chunk, meet func(batch, concurrent int), done func(gpumux.Result)) error {
	return w.direct[pool].RunDirect(ctx, chunk, meet, done)
}

// quiet is a logger for the SDK, which drops the lines that are no warnings.
func quiet(to *zap.Logger) log.Logger {
	if to.Core().Enabled(zap.InfoLevel) { // zap complains of a level below the logger's own
		to = to.WithOptions(zap.IncreaseLevel(zap.WarnLevel))
	}
	return zapLog{to.WithOptions(zap.AddCallerSkip(1)).Sugar()}
}

type zapLog struct{ *zap.SugaredLogger }

func (l zapLog) Debug(msg string, keyvals ...any) { l.Debugw(msg, keyvals...) }
func (l zapLog) Info(msg string, keyvals ...any)  { l.Infow(msg, keyvals...) }
func (l zapLog) Warn(msg string, keyvals ...any)  { l.Warnw(msg, keyvals...) }

// Error logs what was cancelled as information: that is no failure.
func (l zapLog) Error(msg string, keyvals ...any) {
	write := l.Errorw
	if strings.HasSuffix(msg, context.Canceled.Error()) {
		write = l.Infow
	}
	for _, each := range keyvals {
		if err, _ := each.(error); temporal.IsCanceledError(err) || errors.Is(err, context.Canceled) {
			write = l.Infow
		}
	}
	write(msg, keyvals...)
}

func (l zapLog) With(keyvals ...any) log.Logger { return zapLog{l.SugaredLogger.With(keyvals...)} }

package workers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/codec"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/payload"
	"github.com/gpumux/gpumux/internal/record"
	"github.com/gpumux/gpumux/store"
)

// dialLimit bounds the wait for a server at the start.
const dialLimit = 15 * time.Second

// readKeys reads the keys. With keys or a codec, the log leaves out what tasks said.
func (w *Worker) readKeys() error {
	keys, err := w.config.Keys()
	if err != nil {
		return err
	}
	if keys != nil {
		w.objects = keys
		if w.o.Codec == nil {
			w.o.Codec = keys
		}
	}
	if w.o.Codec != nil {
		w.log = redact(w.log)
	}
	if w.o.Codec != nil && keys == nil {
		w.log.Warn("payloads pass through a codec, but objects in the store are not encrypted; give codec.keys too")
	}
	return nil
}

// dial connects to Temporal. Its error says which address did not answer and what to do.
func (w *Worker) dial(ctx context.Context) error {
	t := w.config.Temporal
	o, err := envconfig.LoadClientOptions(envconfig.LoadClientOptionsRequest{IncludeRemoteCodec: w.o.Codec == nil})
	if err != nil {
		return fmt.Errorf("read Temporal's own settings (TEMPORAL_… variables, temporal.toml): %w", err)
	}
	if o.DataConverter != nil { // a remote codec
		o.FailureConverter = codec.Failures(o.DataConverter)
		w.log = redact(w.log)
	}
	codec.Apply(&o, w.o.Codec)
	o.HostPort = cmp.Or(t.Address, o.HostPort, client.DefaultHostPort)
	o.Namespace = cmp.Or(t.Namespace, o.Namespace, client.DefaultNamespace)
	o.Identity = w.identity
	o.ContextPropagators = append(o.ContextPropagators, payload.Headers{})
	o.Logger = newTemporalLog(w.log)
	if w.config.Metrics != "" {
		o.MetricsHandler = w.metrics.SDK()
	}
	o.WorkerHeartbeatInterval = 10 * time.Second
	// The connection is back within a second of the server.
	reconnect := grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: 5 * time.Second}
	reconnect.Backoff.BaseDelay, reconnect.Backoff.MaxDelay = 200*time.Millisecond, time.Second
	o.ConnectionOptions.DialOptions = append(o.ConnectionOptions.DialOptions, grpc.WithChainUnaryInterceptor(w.patient),
		grpc.WithConnectParams(reconnect))
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	if w.client, err = client.DialContext(ctx, o); err != nil {
		return fmt.Errorf("reach Temporal at %s (namespace %s): %w; start one with gpumux dev, or set temporal.address or TEMPORAL_ADDRESS",
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
// The SDK gives up after ten seconds, and a finished chunk would run again.
func (w *Worker) patient(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	switch method {
	case workflowservice.WorkflowService_RespondActivityTaskCompleted_FullMethodName,
		workflowservice.WorkflowService_RespondActivityTaskFailed_FullMethodName,
		workflowservice.WorkflowService_RespondActivityTaskCanceled_FullMethodName:
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
	if w.store, err = store.Open(ctx, w.storeURL, w.objects); err != nil {
		return err
	}
	w.recorders = record.New(w.store)
	w.recorders.Failed = w.metrics.StoreFailed
	if w.client = w.o.Client; w.client != nil {
		return nil
	}
	return w.dial(ctx)
}

// RunDirect runs items in a pool's slots: see activities.Pool.RunDirect.
func (w *Worker) RunDirect(ctx context.Context, pool string, chunk contract.Chunk, done func(gpumux.Result)) (batch int64, err error) {
	return w.direct[pool].RunDirect(ctx, chunk, done)
}

// temporalLog passes the SDK's warnings and errors on to zap, and drops the rest.
type temporalLog struct{ *zap.SugaredLogger }

func newTemporalLog(to *zap.Logger) log.Logger { return ownLog(to.Named("temporal")) }

// ownLog adapts the worker's log to the SDK's type.
func ownLog(to *zap.Logger) log.Logger {
	return temporalLog{to.WithOptions(zap.AddCallerSkip(1)).Sugar()}
}

func (temporalLog) Debug(string, ...any) {}
func (temporalLog) Info(string, ...any)  {}

func (l temporalLog) Warn(msg string, keyvals ...any)  { l.Warnw(msg, keyvals...) }
func (l temporalLog) Error(msg string, keyvals ...any) { l.Errorw(msg, keyvals...) }

// With adds fields to every later line.
func (l temporalLog) With(keyvals ...any) log.Logger {
	return temporalLog{l.SugaredLogger.With(keyvals...)}
}

// withheld replaces in the log what a task said.
const withheld = "(not in the log, since payloads are encrypted; see the map's results)"

// redact is a log without the texts of faults, which may hold parts of items: the log is
// not encrypted, even if payloads are. Kinds, places and numbers stay.
func redact(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		if _, already := c.(redactedCore); already {
			return c
		}
		return redactedCore{c}
	}))
}

type redactedCore struct{ zapcore.Core }

// With is zapcore.Core's.
func (p redactedCore) With(fields []zap.Field) zapcore.Core {
	return redactedCore{p.Core.With(redacted(fields))}
}

// Check is zapcore.Core's.
func (p redactedCore) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if p.Enabled(e.Level) {
		return to.AddCore(e, p)
	}
	return to
}

// Write is zapcore.Core's.
func (p redactedCore) Write(e zapcore.Entry, fields []zap.Field) error {
	return p.Core.Write(e, redacted(fields))
}

// redacted removes the texts of faults from fields.
func redacted(fields []zap.Field) []zap.Field {
	kept := make([]zap.Field, len(fields))
	for i, f := range fields {
		kept[i] = f
		err, _ := f.Interface.(error)
		var fault *gpumux.Fault
		var application *temporal.ApplicationError
		switch {
		case f.Key == "fault", f.Key == "item":
			kept[i] = zap.String(f.Key, withheld)
		case errors.As(err, &fault):
			kept[i] = zap.String(f.Key, string(fault.Kind)+" "+withheld)
		case errors.As(err, &application):
			kept[i] = zap.String(f.Key, application.Type()+" "+withheld)
		}
	}
	return kept
}

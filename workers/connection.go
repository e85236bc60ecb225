package workers

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/gpumux/gpumux/codec"
	"github.com/gpumux/gpumux/internal/payload"
)

// dialLimit bounds the wait for a server at the start.
const dialLimit = 15 * time.Second

// readKeys reads the keys. Where payloads are encrypted, it removes what tasks say from the log.
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
	// An outage ends soon after the server is back.
	again := grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: 5 * time.Second}
	again.Backoff.BaseDelay, again.Backoff.MaxDelay = 200*time.Millisecond, time.Second
	o.ConnectionOptions.DialOptions = append(o.ConnectionOptions.DialOptions, grpc.WithChainUnaryInterceptor(w.patient),
		grpc.WithConnectParams(again))
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	if w.client, err = client.DialContext(ctx, o); err != nil {
		return fmt.Errorf("reach Temporal at %s (namespace %s): %w; start one with gpumux dev, or set temporal.address or TEMPORAL_ADDRESS",
			o.HostPort, o.Namespace, err)
	}
	return nil
}

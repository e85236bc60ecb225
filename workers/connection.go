package workers

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"

	"github.com/gpumux/gpumux/codec"
	"github.com/gpumux/gpumux/internal/contract"
)

// TemporalConfig says where the Temporal server is. What is left out comes from Temporal's own conventions: TEMPORAL_ADDRESS,
// TEMPORAL_NAMESPACE, TEMPORAL_API_KEY, TEMPORAL_TLS_…, TEMPORAL_CODEC_ENDPOINT and the profiles in temporal.toml; last
// localhost:7233 and default.
type TemporalConfig struct {
	Address   string `yaml:"address"`
	Namespace string `yaml:"namespace"`
	// Deployment is the name of the Worker Deployment that the worker is a version of, and Build that version. Default: the worker
	// has no version; Build is the program's.
	Deployment string `yaml:"deployment"`
	Build      string `yaml:"build"`
}

// version is what makes the worker one of a deployment. A map stays with the version that it began with, since another one's
// workflow code may decide otherwise.
func (t TemporalConfig) version(program string) worker.DeploymentOptions {
	if t.Deployment == "" {
		return worker.DeploymentOptions{}
	}
	return worker.DeploymentOptions{
		UseVersioning:             true,
		Version:                   worker.WorkerDeploymentVersion{DeploymentName: t.Deployment, BuildID: cmp.Or(t.Build, program)},
		DefaultVersioningBehavior: workflow.VersioningBehaviorPinned,
	}
}

// check reports what cannot be a version to r.
func (t TemporalConfig) check(r *report) {
	for _, name := range []struct{ field, text string }{{"temporal.deployment", t.Deployment}, {"temporal.build", t.Build}} {
		if len(name.text) > 200 || strings.ContainsAny(name.text, ".:") && name.field == "temporal.deployment" {
			r.add(name.field, "%.60q has to be of at most 200 bytes without dots and colons", name.text)
		}
	}
	if t.Build != "" && t.Deployment == "" {
		r.add("temporal.build", "is a version of a deployment; give temporal.deployment too")
	}
}

// dialLimit bounds the wait for a server at the start.
const dialLimit = 15 * time.Second

// seal reads the keys, and keeps what tasks say out of the log where payloads are encrypted.
func (w *Worker) seal() error {
	keys, err := w.config.keys()
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
		w.log = private(w.log)
	}
	if w.o.Codec != nil && keys == nil {
		w.log.Warn("payloads pass through a codec, but objects in the store are not encrypted; give codec.keys too")
	}
	return nil
}

// dial connects, or says which address did not answer and what to do.
func (w *Worker) dial(ctx context.Context) error {
	t := w.config.Temporal
	o, err := envconfig.LoadClientOptions(envconfig.LoadClientOptionsRequest{IncludeRemoteCodec: w.o.Codec == nil})
	if err != nil {
		return fmt.Errorf("read Temporal's own settings (TEMPORAL_… variables, temporal.toml): %w", err)
	}
	if o.DataConverter != nil { // a remote codec
		o.FailureConverter = codec.Failures(o.DataConverter)
		w.log = private(w.log)
	}
	codec.Apply(&o, w.o.Codec)
	o.HostPort = cmp.Or(t.Address, o.HostPort, client.DefaultHostPort)
	o.Namespace = cmp.Or(t.Namespace, o.Namespace, client.DefaultNamespace)
	o.Identity = w.identity
	o.ContextPropagators = append(o.ContextPropagators, contract.Headers{})
	o.Logger = newTemporalLog(w.log)
	o.MetricsHandler = w.sdkMetrics()
	o.WorkerHeartbeatInterval = 10 * time.Second
	o.ConnectionOptions.DialOptions = append(o.ConnectionOptions.DialOptions, grpc.WithChainUnaryInterceptor(patient))
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	if w.client, err = client.DialContext(ctx, o); err != nil {
		return fmt.Errorf("reach Temporal at %s (namespace %s): %w; start one with gpumux dev, or set temporal.address or TEMPORAL_ADDRESS",
			o.HostPort, o.Namespace, err)
	}
	return nil
}

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
	"go.uber.org/zap"

	"github.com/gpumux/gpumux/internal/contract"
)

// TemporalConfig says where the Temporal server is. What is left out comes from Temporal's own conventions: TEMPORAL_ADDRESS,
// TEMPORAL_NAMESPACE, TEMPORAL_API_KEY, TEMPORAL_TLS_… and the profiles in temporal.toml; last localhost:7233 and default.
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

// dial connects, or says which address did not answer and what to do.
func (t TemporalConfig) dial(ctx context.Context, identity string, meter client.MetricsHandler, log *zap.Logger) (client.Client, error) {
	o, err := envconfig.LoadClientOptions(envconfig.LoadClientOptionsRequest{})
	if err != nil {
		return nil, fmt.Errorf("read Temporal's own settings (TEMPORAL_… variables, temporal.toml): %w", err)
	}
	o.HostPort = cmp.Or(t.Address, o.HostPort, client.DefaultHostPort)
	o.Namespace = cmp.Or(t.Namespace, o.Namespace, client.DefaultNamespace)
	o.Identity = identity
	o.ContextPropagators = append(o.ContextPropagators, contract.Headers{})
	o.Logger = newTemporalLog(log)
	o.MetricsHandler = meter
	o.WorkerHeartbeatInterval = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	c, err := client.DialContext(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("reach Temporal at %s (namespace %s): %w; start one with gpumux dev, or set temporal.address or TEMPORAL_ADDRESS",
			o.HostPort, o.Namespace, err)
	}
	return c, nil
}

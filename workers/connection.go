package workers

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.uber.org/zap"
)

// TemporalConfig says where the Temporal server is. What is left out comes from Temporal's own conventions: TEMPORAL_ADDRESS,
// TEMPORAL_NAMESPACE, TEMPORAL_API_KEY, TEMPORAL_TLS_… and the profiles in temporal.toml; last localhost:7233 and default.
type TemporalConfig struct {
	Address   string `yaml:"address"`
	Namespace string `yaml:"namespace"`
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

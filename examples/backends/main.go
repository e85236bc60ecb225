// Command backends is a Go service whose workflow does operations on an ordered chain of
// backends.
//
// A backend is a pool of slots and a Python module of the same name. Arrays stay in the
// slots as residents; handles travel. It starts its worker, runs the workflow once, and
// prints where each operation ran, and its numbers, as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
)

// queue is the service's own; gpumux has others.
const queue = "backends"

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "backends:", err)
		os.Exit(1)
	}
}

// run serves the workflow and runs it once.
func run(ctx context.Context) error {
	options, err := envconfig.LoadDefaultClientOptions()
	if err != nil {
		return fmt.Errorf("read the TEMPORAL_… variables: %w", err)
	}
	options.Logger = log.NewStructuredLogger(slog.New(slog.DiscardHandler)) // the SDK's own goes to standard output
	c, err := client.DialContext(ctx, options)
	if err != nil {
		return fmt.Errorf("reach Temporal: %w; start one with: gpumux dev --no-worker", err)
	}
	defer c.Close()
	w := worker.New(c, queue, worker.Options{})
	w.RegisterWorkflow(Backends)
	if err := w.Start(); err != nil {
		return fmt.Errorf("serve the workflow: %w", err)
	}
	defer w.Stop()
	started, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: queue}, Backends)
	if err != nil {
		return fmt.Errorf("start the workflow: %w", err)
	}
	var r report
	if err := started.Get(ctx, &r); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// Command service is a Go service with a Temporal workflow of its own that maps a gpumux
// task over its input.
//
// It owns the workflow Languages and a worker for it. It never runs a task itself: the
// slots are at the gpumux workers, which may be on other machines. `service` serves until
// Ctrl-C; `service TEXT…` starts the workflow, prints its result and ends.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/worker"
)

// queue is the service's own; gpumux has others.
const queue = "languages"

func main() {
	if err := start(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "service:", err)
		os.Exit(1)
	}
}

// start serves without texts, else counts the languages of the texts.
func start(ctx context.Context, texts []string) error {
	options, err := envconfig.LoadDefaultClientOptions()
	if err != nil {
		return fmt.Errorf("read the TEMPORAL_… variables: %w", err)
	}
	c, err := client.DialContext(ctx, options)
	if err != nil {
		return fmt.Errorf("reach Temporal: %w; start one with: gpumux dev --tasks examples/python", err)
	}
	defer c.Close()
	if len(texts) == 0 {
		w := worker.New(c, queue, worker.Options{})
		w.RegisterWorkflow(Languages)
		return w.Run(worker.InterruptCh())
	}
	run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: queue}, Languages, texts)
	if err != nil {
		return fmt.Errorf("start the workflow: %w", err)
	}
	var languages map[string]int
	if err := run.Get(ctx, &languages); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(languages)
}

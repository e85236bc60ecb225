package host

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/starter/cli/app"
)

// watchEvery is the time between two looks of --watch.
const watchEvery = 2 * time.Second

func gpusCommand(a *app.App) *cobra.Command {
	var asJSON, topology, watch bool
	c := &cobra.Command{
		Use:   "gpus",
		Short: "Show this machine's devices: memory, health, MIG, processes, links",
		Long: `Show this machine's devices: memory, health, MIG instances below their GPU, and who holds memory on them.
HEALTH is what the driver says the device needs: ok, or drain, reset, reboot; lost or silent when it does not
answer; - when nothing tells. Details follow where there is something to say: ECC errors, remapped rows, MPS.
A pool's devices take the beginning of a UUID as well. docs/gpus.schema.json describes what --json prints.`,
		Example: "  gpumux gpus\n  gpumux gpus --watch\n  gpumux gpus --topology\n  gpumux gpus --json | jq '.devices[].status.memory.free'",
		Args:    cobra.NoArgs,
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON; sizes are in bytes")
	c.Flags().BoolVar(&topology, "topology", false, "show how the GPUs are linked")
	c.Flags().BoolVar(&watch, "watch", false, "show them again every 2s until Ctrl-C; with --json a line each time")
	c.RunE = func(c *cobra.Command, _ []string) error {
		inventory, err := gpu.Open(gpu.Options{})
		if err != nil {
			return app.Unavailable(fmt.Errorf("list this machine's devices: %w", err))
		}
		defer inventory.Close()
		look := func() (*Report, error) { return Inspect(inventory, topology || asJSON) }
		if watch {
			return Watch(c.Context(), a.Stdout, watchEvery, asJSON, topology, look)
		}
		r, err := look()
		if err != nil {
			return err
		}
		if asJSON {
			return app.PrintJSON(a.Stdout, r)
		}
		if err := r.Print(a.Stdout, topology); err != nil {
			return err
		}
		if r.Reason != "" {
			a.Console.Say("%s", r.Reason)
		}
		return nil
	}
	return c
}

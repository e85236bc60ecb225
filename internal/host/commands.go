// Package host has the commands about workers, keys and the machine.
//
// It owns what they ask and print. It never starts a map that a user asked for. A command
// ends with its context, or at once with App.Hard.
package host

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/internal/app"
	"github.com/gpumux/gpumux/internal/bench"
	"github.com/gpumux/gpumux/internal/health"
)

// Commands returns the commands of the package, in the order of the help.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{workerCommand(a), workersCommand(a), topCommand(a), backlogCommand(a), tasksCommand(a), codecServerCommand(a), gpusCommand(a),
		doctorCommand(a), bench.Command(a)}
}

func doctorCommand(a *app.App) *cobra.Command {
	var python string
	var asJSON bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check the set-up; every failed line says what to do",
		Long: `Check the set-up: Python, devices, Temporal, workers and store. Each GPU is tried with a throw-away process.
The exit code is 1 when a check failed.`,
		Example: "  gpumux doctor\n  gpumux doctor --address temporal.internal:7233 --json",
		Args:    cobra.NoArgs,
	}
	c.Flags().StringVar(&python, "python", "python3", "the Python to check")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	a.ConnectionFlags(c)
	a.StoreFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		findings := examine(c.Context(), a, python)
		if err := context.Cause(c.Context()); err != nil {
			return err
		}
		if asJSON {
			if err := app.PrintJSON(a.Stdout, findings); err != nil {
				return err
			}
		} else {
			PrintFindings(a.Stdout, findings)
		}
		if Failed(findings) {
			return app.Exit(app.ExitFailed)
		}
		return nil
	}
	return c
}

// examine runs every check; those that build on a failed one are left out.
func examine(ctx context.Context, a *app.App, python string) []Finding {
	findings := append([]Finding{checkPython(ctx, python)}, checkDevices(ctx, python)...)
	conn, reached := checkTemporal(ctx, a)
	findings = append(findings, reached)
	if conn == nil {
		if a.StoreURL != "" {
			findings = append(findings, checkStore(ctx, a.StoreURL))
		}
		return findings
	}
	defer conn.Close()
	return append(findings, checkWorkers(ctx, a, conn)...)
}

func gpusCommand(a *app.App) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "gpus",
		Short: "Show this machine's devices: memory, MIG, processes",
		Long: `Show this machine's devices: memory, MIG instances below their GPU, and who holds memory on them.
Details follow where there is something to say: a device that does not answer, MIG mode, MPS.
A pool's devices take the beginning of a UUID as well. Whether a device works, gpumux doctor tries.
docs/gpus.schema.json describes --json.`,
		Example: "  gpumux gpus\n  gpumux gpus --json | jq '.devices[].status.memory.free'",
		Args:    cobra.NoArgs,
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON; sizes are in bytes")
	c.RunE = func(c *cobra.Command, _ []string) error {
		inventory, err := health.Open(c.Context(), "")
		if err != nil {
			return app.Unavailable(fmt.Errorf("list this machine's devices: %w", err))
		}
		defer inventory.Close()
		r := Inspect(inventory)
		if asJSON {
			return app.PrintJSON(a.Stdout, r)
		}
		if err := r.Print(a.Stdout); err != nil {
			return err
		}
		if r.Reason != "" {
			a.Console.Say("%s", r.Reason)
		}
		return nil
	}
	return c
}

// Package host has the commands about workers, keys and the machine.
//
// It owns what they ask and print. It never starts a map that a user asked for. A command
// ends with its context, or at once with App.Hard.
package host

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/gpu"
	"github.com/gpumux/gpumux/internal/app"
)

// Commands are those of the package, in the order of the help.
func Commands(a *app.App) []*cobra.Command {
	return []*cobra.Command{workerCommand(a), workersCommand(a), topCommand(a), tasksCommand(a), codecServerCommand(a), gpusCommand(a),
		doctorCommand(a), benchCommand(a)}
}

type doctorFlags struct {
	task, python string
	json         bool
}

func doctorCommand(a *app.App) *cobra.Command {
	f := &doctorFlags{}
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check the set-up; every failed line says what to do",
		Long: `Check the set-up: Python, devices, Temporal, workers, store, ports and, with --task, whether a task can be
imported. Each GPU is tried with a throw-away process. The exit code is 1 when a check failed.`,
		Example: "  gpumux doctor\n  gpumux doctor --task embed.py:embed\n  gpumux doctor --address temporal.internal:7233 --json",
		Args:    cobra.NoArgs,
	}
	c.Flags().StringVar(&f.task, "task", "", "a task to import, file.py:function or module:function")
	c.Flags().StringVar(&f.python, "python", "python3", "the Python to check")
	c.Flags().BoolVar(&f.json, "json", false, "print JSON")
	a.ConnectionFlags(c)
	a.StoreFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		findings := examine(c.Context(), a, f)
		if err := context.Cause(c.Context()); err != nil {
			return err
		}
		if f.json {
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
func examine(ctx context.Context, a *app.App, f *doctorFlags) []Finding {
	findings := []Finding{checkPython(ctx, f.python)}
	if f.task != "" && findings[0].Verdict == Good {
		findings = append(findings, checkTask(ctx, f.python, f.task))
	}
	findings = append(findings, checkDevices(ctx, f.python)...)
	findings = append(findings, checkState())
	conn, reached := checkTemporal(ctx, a)
	findings = append(findings, reached)
	if conn == nil {
		if a.Local != nil && a.Address == "" {
			findings = append(findings, checkPort("port 7233", "--port", 7233), checkPort("port 8233", "--ui-port", 8233))
		}
		if a.StoreURL != "" {
			findings = append(findings, checkStore(ctx, a.StoreURL))
		}
		return findings
	}
	defer conn.Close()
	return append(findings, checkWorkers(ctx, a, conn)...)
}

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

package cli

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/gpu"
)

// hostCommands returns the commands of the package, in the order of the help.
func hostCommands(a *app) []*cobra.Command {
	return []*cobra.Command{workerCommand(a), workersCommand(a), topCommand(a), backlogCommand(a), tasksCommand(a), codecServerCommand(a), gpusCommand(a),
		doctorCommand(a), benchCommand(a)}
}

func doctorCommand(a *app) *cobra.Command {
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
	c.Flags().StringVar(&python, "python", "", pythonUsage)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	a.connectionFlags(c)
	a.storeFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		findings := examine(c.Context(), a, cmp.Or(python, "python3"))
		if err := context.Cause(c.Context()); err != nil {
			return err
		}
		if asJSON {
			if err := printJSON(a.Stdout, findings); err != nil {
				return err
			}
		} else {
			printFindings(a.Stdout, findings)
		}
		if anyBad(findings) {
			return exitCode(exitFailed)
		}
		return nil
	}
	return c
}

// examine runs every check; those that build on a failed one are left out.
func examine(ctx context.Context, a *app, python string) []finding {
	findings := append([]finding{checkPython(ctx, python)}, checkDevices(ctx, python)...)
	conn, reached := checkTemporal(ctx, a)
	findings = append(findings, reached)
	if conn == nil {
		if a.storeURL != "" {
			findings = append(findings, checkStore(ctx, a.storeURL))
		}
		return findings
	}
	defer conn.close()
	return append(findings, checkWorkers(ctx, a, conn)...)
}

func gpusCommand(a *app) *cobra.Command {
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
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		inventory, err := gpu.Open(c.Context(), gpu.Options{})
		if err != nil {
			return unavailable(fmt.Errorf("list this machine's devices: %w", err))
		}
		defer inventory.Close()
		r := inspectDevices(inventory)
		if asJSON {
			return printJSON(a.Stdout, r)
		}
		if err := r.Print(a.Stdout); err != nil {
			return err
		}
		if r.Reason != "" {
			a.console.Say("%s", r.Reason)
		}
		return nil
	}
	return c
}

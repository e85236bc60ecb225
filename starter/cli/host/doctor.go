package host

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/starter/cli/app"
)

// doctorFlags are the flags of `gpumux doctor`.
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

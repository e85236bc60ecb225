package cli

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
)

// verdict is what one check found.
type verdict string

const (
	// good needs nothing; note is worth knowing and no mistake; bad keeps something from working.
	good verdict = "ok"
	note verdict = "note"
	bad  verdict = "FAILED"
)

// finding is a line of `gpumux doctor`.
type finding struct {
	Check   string  `json:"check"`
	Verdict verdict `json:"verdict"`
	Detail  string  `json:"detail"`
	// Fix says what to do; it is there whenever the verdict is bad.
	Fix string `json:"fix,omitempty"`
}

// doctorFlags are the flags of `gpumux doctor`.
type doctorFlags struct {
	task, python string
	json         bool
}

func (a *app) doctorCommand() *cobra.Command {
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
	a.connectionFlags(c)
	a.storeFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		findings := a.examine(c.Context(), f)
		if err := context.Cause(c.Context()); err != nil {
			return err
		}
		if f.json {
			if err := printJSON(a.Stdout, findings); err != nil {
				return err
			}
		} else {
			printFindings(a.Stdout, findings)
		}
		return verdictOf(findings, ExitFailed)
	}
	return c
}

// examine runs every check; those that build on a failed one are left out.
func (a *app) examine(ctx context.Context, f *doctorFlags) []finding {
	findings := []finding{checkPython(ctx, f.python)}
	if f.task != "" && findings[0].Verdict == good {
		findings = append(findings, checkTask(ctx, f.python, f.task))
	}
	findings = append(findings, checkDevices(ctx, f.python)...)
	findings = append(findings, checkState())
	conn, reached := a.checkTemporal(ctx)
	findings = append(findings, reached)
	if conn == nil {
		if a.Local != nil && a.address == "" {
			findings = append(findings, checkPort("port 7233", "--port", 7233), checkPort("port 8233", "--ui-port", 8233))
		}
		if a.storeURL != "" {
			findings = append(findings, checkStore(ctx, a.storeURL))
		}
		return findings
	}
	defer conn.close()
	return append(findings, a.checkWorkers(ctx, conn)...)
}

// verdictOf ends the command with a code when a check failed.
func verdictOf(findings []finding, code exitError) error {
	if slices.ContainsFunc(findings, func(f finding) bool { return f.Verdict == bad }) {
		return code
	}
	return nil
}

func printFindings(to io.Writer, findings []finding) {
	width := 0
	for _, f := range findings {
		width = max(width, len(f.Check))
	}
	for _, f := range findings {
		fmt.Fprintf(to, "%-6s  %-*s  %s\n", f.Verdict, width, f.Check, f.Detail)
		if f.Fix != "" {
			fmt.Fprintf(to, "%-6s  %-*s  -> %s\n", "", width, "", f.Fix)
		}
	}
}

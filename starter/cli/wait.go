package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/starter"
)

func (a *app) waitCommand() *cobra.Command {
	var asJSON, quiet bool
	c := &cobra.Command{
		Use:   "wait ID",
		Short: "Follow a map to its end",
		Long: `Follow a map to its end and say what it came to. The exit code is that of ` + "`gpumux map`" + `: 0 when every item
succeeded, 1 when some failed. Ctrl-C leaves the map running.`,
		Example: "  gpumux wait embed-3fa92c01d4e5 && gpumux results embed-3fa92c01d4e5 --out vectors.jsonl",
		Args:    oneID,
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the summary as JSON")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "no progress and no summary")
	a.connectionFlags(c)
	c.RunE = ran(func(c *cobra.Command, args []string) error {
		a.console.quiet = quiet
		conn, err := a.connect(c.Context())
		if err != nil {
			return err
		}
		defer conn.close()
		h, err := conn.Open(c.Context(), args[0])
		if err != nil {
			return err
		}
		ladder := []string(nil)
		if h.Running() {
			if in, err := h.Input(c.Context()); err == nil {
				ladder = in.Rungs()
			}
		}
		end, err := a.follow(c.Context(), conn, h, ladder)
		if errors.Is(err, errInterrupted) {
			a.console.say("detached; map %s goes on", h.ID)
			a.comeBack(h.ID)
			return exitError(ExitInterrupted)
		}
		if err != nil {
			return a.explain(err)
		}
		end.faults = firstFaults(end.Summary.Results)
		if asJSON {
			if err := end.printJSON(a.Stdout); err != nil {
				return err
			}
		} else if !quiet {
			end.print(a.console)
			if end.Failed > 0 {
				a.console.say("  to run the failed items again: gpumux retry %s", h.ID)
			}
		}
		return end.exit()
	})
	return c
}

func (a *app) resultsCommand() *cobra.Command {
	var out string
	var f filter
	c := &cobra.Command{
		Use:   "results ID",
		Short: "Fetch the results of a finished map",
		Long: `Fetch the results of a finished map, one JSON line per item in input order. A map that still runs is an
error: ` + "`gpumux wait`" + ` first. The exit code is 0 when every item succeeded, 1 when some failed.`,
		Example: "  gpumux results embed-3fa92c01d4e5 --out vectors.jsonl\n  gpumux results embed-3fa92c01d4e5 --failed | jq .fault.message",
		Args:    oneID,
	}
	c.Flags().StringVar(&out, "out", "-", "a file, or - for standard output")
	c.Flags().BoolVar(&f.values, "values", false, "only the values; null for a failed item")
	c.Flags().BoolVar(&f.failed, "failed", false, "only the failed items")
	a.connectionFlags(c)
	a.storeFlag(c)
	c.RunE = ran(func(c *cobra.Command, args []string) error {
		if f.values && f.failed {
			return usage("--values and --failed exclude each other: a failed item has no value")
		}
		to, err := a.chooseOutput(out, false)
		if err != nil {
			return err
		}
		conn, err := a.connect(c.Context())
		if err != nil {
			return err
		}
		defer conn.close()
		h, err := conn.Open(c.Context(), args[0])
		if err != nil {
			return err
		}
		if h.Running() {
			return &starter.StillRunning{ID: h.ID}
		}
		summary, err := h.Wait(c.Context())
		if err != nil {
			return a.explain(err)
		}
		if _, err := to.write(c.Context(), conn.Starter, summary, f); err != nil {
			return err
		}
		return (&report{Summary: summary}).exit()
	})
	return c
}

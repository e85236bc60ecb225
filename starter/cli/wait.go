package cli

import (
	"errors"

	"github.com/spf13/cobra"
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
	c.RunE = func(c *cobra.Command, args []string) error {
		a.console.Quiet = quiet
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
			a.console.Say("detached; map %s goes on", h.ID)
			a.comeBack(h.ID)
			return exitError(ExitInterrupted)
		}
		if err != nil {
			return a.explain(err)
		}
		end.Causes = a.causes(c.Context(), conn, end.Summary)
		if asJSON {
			if err := end.printJSON(a.Stdout); err != nil {
				return err
			}
		} else if !quiet {
			end.print(a.console)
			if end.Failed > 0 {
				a.console.Say("  to run the failed items again: %s", a.command("retry "+h.ID))
			}
		}
		return end.exit()
	}
	return c
}

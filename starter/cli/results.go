package cli

import (
	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/starter"
)

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

package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/starter"
)

func (a *app) resultsCommand() *cobra.Command {
	var out string
	var f filter
	var follow bool
	var o starter.FollowOptions
	c := &cobra.Command{
		Use:   "results ID",
		Short: "Fetch the results of a map",
		Long: `Fetch the results of a finished map, one JSON line per item in input order. With --follow those of a running
map as they come, each once all items before it have finished, until the map ends; Ctrl-C leaves the map
running. The exit code is 0 when every item succeeded, 1 when some failed.`,
		Example: `  gpumux results embed-3fa92c01d4e5 --out vectors.jsonl
  gpumux results embed-3fa92c01d4e5 --failed | jq .fault.message
  gpumux results embed-3fa92c01d4e5 --follow --unordered | jq -c .value`,
		Args: oneID,
	}
	c.Flags().StringVar(&out, "out", "-", "a file, compressed when it ends in .gz or .zst, or - for standard output")
	c.Flags().BoolVar(&f.values, "values", false, "only the values; null for a failed item")
	c.Flags().BoolVar(&f.failed, "failed", false, "only the failed items")
	c.Flags().BoolVar(&follow, "follow", false, "of a running map: the results as they come")
	c.Flags().BoolVar(&o.Unordered, "unordered", false, "with --follow: each as soon as it is there, in any order")
	a.connectionFlags(c)
	a.storeFlag(c)
	c.RunE = ran(func(c *cobra.Command, args []string) error {
		if o.Unordered && !follow {
			return usage("--unordered goes with --follow; the results of a finished map are in order")
		}
		if f.values && f.failed {
			return usage("--values and --failed exclude each other: a failed item has no value")
		}
		to, err := a.chooseOutput(out, false)
		if err != nil {
			return err
		}
		conn, err := a.connectWithStore(c.Context())
		if err != nil {
			return err
		}
		defer conn.close()
		h, err := conn.Open(c.Context(), args[0])
		if err != nil {
			return err
		}
		if follow {
			if _, err := to.lines(c.Context(), h.FollowLines(c.Context(), o), f); err != nil {
				if errors.Is(err, errInterrupted) {
					a.console.say("map %s goes on", h.ID)
					return exitError(ExitInterrupted)
				}
				return a.explain(err)
			}
		} else if h.Running() {
			return &starter.StillRunning{ID: h.ID, Results: true}
		}
		summary, err := h.Wait(c.Context())
		if err != nil {
			return a.explain(err)
		}
		if !follow {
			if _, err := to.write(c.Context(), conn.Starter, summary, f); err != nil {
				return err
			}
		}
		return (&report{Summary: summary}).exit()
	})
	return c
}

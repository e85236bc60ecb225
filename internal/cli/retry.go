package cli

import (
	"cmp"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux"
)

func retryCommand(a *app) *cobra.Command {
	f := &mapFlags{}
	c := &cobra.Command{
		Use:   "retry ID",
		Short: "Run the failed items of a finished map again and merge the results",
		Long: `Run the failed items of a finished map again. The results of both runs end up in one file, under the same
ID. Of a map that was cancelled or failed, the items without a result run.`,
		Example: "  gpumux retry embed-3fa92c01d4e5\n  gpumux retry embed-3fa92c01d4e5 --pool big --timeout 10m",
		Args:    oneID,
	}
	flags := c.Flags()
	flags.StringSliceVar(&f.input.Ladder, "pool", nil, "pools to use (default: the map's)")
	flags.StringVar((*string)(&f.input.Mode), "mode", "", "persistent or fresh (default: the map's)")
	flags.DurationVar((*time.Duration)(&f.input.Timeout), "timeout", 0, "longest time of one item (default: the map's)")
	flags.IntVar(&f.input.Attempts, "attempts", 1, "how often an item that raises is tried (default: the map's)")
	flags.Lookup("attempts").DefValue = "0"
	flags.StringVar(&f.out, "out", "", "results: a file, JSON lines, compressed when it ends in .gz or .zst, or .parquet, .arrow, .feather or .npy; or - for standard output, where they come in order while it runs (default: the pipe, else ./ID.results.jsonl)")
	f.registerFiles(flags, "default: they stay in the store")
	flags.BoolVar(&f.detach, "detach", false, "start the retry, print the ID and leave")
	flags.BoolVar(&f.noWait, "no-wait", false, "fail when no worker serves the pool, instead of waiting for one")
	flags.BoolVar(&f.json, "json", false, "print the summary as JSON on standard output; results go to a file")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "no progress and no summary")
	a.connectionFlags(c)
	a.storeFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error { return runRetry(a, c, args[0], f) }
	return c
}

func runRetry(a *app, c *cobra.Command, id string, f *mapFlags) error {
	var m mistakes
	checkGiven(&m, c)
	f.checkInput(&m, c.Flags().Changed)
	f.checkFiles(&m)
	if err := m.err(); err != nil {
		return err
	}
	f.retry = true
	r, err := newMapRun(a, f)
	if err != nil {
		return err
	}
	ctx := c.Context()
	if r.conn, err = a.connectWithStore(ctx); err != nil {
		return err
	}
	defer r.conn.close()
	if f.noWait && len(f.input.Ladder) > 0 {
		if err := checkServed(ctx, r.conn.Starter, f.input.Ladder, ""); err != nil {
			return err
		}
	}
	r.h, err = r.conn.Retry(ctx, id, func(in *gpumux.MapInput) {
		if len(f.input.Ladder) > 0 {
			in.Ladder = f.input.Ladder
		}
		in.Mode, in.Timeout = cmp.Or(f.input.Mode, in.Mode), cmp.Or(f.input.Timeout, in.Timeout)
		if c.Flags().Changed("attempts") {
			in.Attempts = f.input.Attempts
		}
	})
	if err != nil {
		return err
	}
	in, err := r.h.Input(ctx)
	if err != nil {
		return err
	}
	return r.follow(ctx, in.Rungs())
}

package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/starter/cli/app"
	"github.com/gpumux/gpumux/starter/cli/files"
	"github.com/gpumux/gpumux/starter/cli/screen"
)

func (a *program) retryCommand() *cobra.Command {
	f := &mapFlags{}
	c := &cobra.Command{
		Use:   "retry ID",
		Short: "Run the failed items of a finished map again and merge the results",
		Long: `Run the failed items of a finished map again. The results of both runs end up in one file, under the same
ID. Of a map that was cancelled or failed, the items without a result run.`,
		Example: "  gpumux retry embed-3fa92c01d4e5\n  gpumux retry embed-3fa92c01d4e5 --pool big --timeout 10m",
		Args:    app.OneID,
	}
	flags := c.Flags()
	flags.StringSliceVar(&f.pools, "pool", nil, "pools to use (default: the map's)")
	flags.StringVar(&f.mode, "mode", "", "persistent or fresh (default: the map's)")
	flags.DurationVar(&f.timeout, "timeout", 0, "longest time of one item (default: the map's)")
	flags.IntVar(&f.attempts, "attempts", 1, "how often an item that raises is tried (default: the map's)")
	flags.Lookup("attempts").DefValue = "0"
	flags.StringVar(&f.out, "out", "", "results: a file, JSON lines, compressed when it ends in .gz or .zst, or .parquet, .arrow, .feather or .npy; or - for standard output, where they come in order while it runs (default: the pipe, else ./ID.results.jsonl)")
	f.registerFiles(flags, "default: they stay in the store")
	flags.BoolVar(&f.detach, "detach", false, "start the retry, print the ID and leave")
	flags.BoolVar(&f.noWait, "no-wait", false, "fail when no worker serves the pool, instead of waiting for one")
	flags.BoolVar(&f.json, "json", false, "print the summary as JSON on standard output; results go to a file")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "no progress and no summary")
	a.ConnectionFlags(c)
	a.StoreFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error { return a.runRetry(c, args[0], f) }
	return c
}

func (a *program) runRetry(c *cobra.Command, id string, f *mapFlags) error {
	var m app.Mistakes
	f.checkInput(&m, c.Flags().Changed)
	f.checkFiles(&m)
	if err := m.Err(); err != nil {
		return err
	}
	a.Console.Quiet = f.quiet
	out, err := files.Choose(f.out, a.Console.Above(a.Stdout), f.json, screen.IsTerminal(a.Stdout))
	if err != nil {
		return err
	}
	out.Note = a.Console.Note
	o := starter.RetryOptions{Ladder: f.pools, Mode: gpumux.Mode(f.mode), Timeout: gpumux.Duration(f.timeout)}
	if c.Flags().Changed("attempts") {
		o.Attempts = f.attempts
	}
	ctx := c.Context()
	conn, err := a.ConnectWithStore(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if f.noWait && len(f.pools) > 0 {
		last, err := conn.Open(ctx, id)
		if err != nil {
			return err
		}
		if err := checkServed(ctx, conn.Starter, f.pools, last.Task); err != nil {
			return err
		}
	}
	h, err := conn.Retry(ctx, id, o)
	var nothing *starter.NothingFailed
	if errors.As(err, &nothing) {
		a.Console.Say("%v", err)
		h, err = conn.Open(ctx, id)
	} else if err == nil {
		a.Console.Note("%s", began(h))
	}
	if err != nil {
		return err
	}
	if f.detach {
		return a.detach(h)
	}
	in, err := h.Input(ctx)
	if err != nil {
		return err
	}
	_, err = a.finish(ctx, conn, h, in.Rungs(), out, f)
	return err
}

package cli

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux"
)

func retryCommand(a *app) *cobra.Command {
	f := &mapFlags{}
	c := &cobra.Command{
		Use:   "retry ID",
		Short: "Run the failed items of a finished map again and merge the results",
		Long: `Run the failed items of a finished map again. The results of both runs end up in one file, under the same
ID. Of a map that was cancelled or failed, the items without a result run. Pools, mode, timeout and attempts
are the map's where they are not given.`,
		Example: "  gpumux retry embed-3fa92c01d4e5\n  gpumux retry embed-3fa92c01d4e5 --pool big --timeout 10m",
		Args:    oneID,
	}
	flags := c.Flags()
	f.registerPool(flags)
	f.registerMode(flags)
	f.registerRun(flags)
	a.connectionFlags(c)
	a.storeFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error { return runRetry(a, c, args[0], f) }
	return c
}

func runRetry(a *app, c *cobra.Command, id string, f *mapFlags) error {
	var m mistakes
	f.checkInput(&m, c)
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

package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/starter/cli/app"
	"github.com/gpumux/gpumux/starter/cli/show"
)

func lsCommand(a *app.App) *cobra.Command {
	var limit int
	var running, asJSON bool
	c := &cobra.Command{
		Use:     "ls",
		Short:   "List maps, the newest first",
		Example: "  gpumux ls\n  gpumux ls --running --json",
		Args:    cobra.NoArgs,
	}
	c.Flags().IntVarP(&limit, "limit", "n", 20, "the most maps to list")
	c.Flags().BoolVar(&running, "running", false, "only maps that run")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.PreRunE = func(*cobra.Command, []string) error {
		if limit < 1 {
			return app.Usage("--limit %d: give at least 1", limit)
		}
		return nil
	}
	return a.OnServer(c, func(ctx context.Context, conn *app.Connection, _ []string) error {
		maps, err := conn.List(ctx, starter.ListOptions{Limit: limit, Running: running, Counts: true})
		if err != nil {
			return err
		}
		if asJSON {
			if maps == nil {
				maps = []starter.Listed{}
			}
			return app.PrintJSON(a.Stdout, maps)
		}
		if len(maps) == 0 {
			a.Console.Say("no maps; start one with `gpumux map`")
			return nil
		}
		return show.Maps(a.Stdout, maps, time.Now())
	})
}

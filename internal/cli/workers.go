package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/report"
	"github.com/gpumux/gpumux/starter"
)

func workersCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "workers",
		Short: "List the workers: their pools, slots, versions and tasks",
		Long: `List the workers, with a line for each of their pools: slots that run items of those that there are, the
budget of a slot, the version, and the tasks as far as there is room; --json has them all, with their modes.
A worker that was killed, or stands still, is listed for a while without pools.`,
		Example: "  gpumux workers\n  gpumux workers --json | jq -r '.[].offer.tasks[]?'",
		Args:    cobra.NoArgs,
	}
	asJSON := c.Flags().Bool("json", false, "print JSON")
	return a.onServer(c, func(ctx context.Context, conn *connection, _ []string) error {
		all, err := conn.Fleet().Workers(ctx)
		if err != nil {
			return err
		}
		for _, w := range all {
			if w.Error != "" {
				a.console.Say("worker %s: %s", w.Identity, report.OneLine(w.Error, 300))
			}
		}
		if *asJSON {
			return printJSON(a.Stdout, all)
		}
		return report.Workers(a.Stdout, all, time.Now())
	})
}

func topCommand(a *app) *cobra.Command {
	var every time.Duration
	c := &cobra.Command{
		Use:   "top",
		Short: "Show workers, slots and maps live",
		Long: `Show live, in a terminal, how far the running maps and their stages are, and what each slot of each worker
does: its state, its memory of its budget, items a second, faults, and its map.

Keys: q leaves; arrows, PgUp, PgDn, Home and End scroll, the right arrow to columns that have no room.`,
		Example: "  gpumux top\n  gpumux top --every 10s",
		Args:    cobra.NoArgs,
	}
	c.Flags().DurationVar(&every, "every", 2*time.Second, "pause between two looks at the workers")
	c.PreRunE = func(*cobra.Command, []string) error {
		switch {
		case every < 100*time.Millisecond:
			return usage("--every %s: give at least 100ms", every)
		case !report.IsTerminal(a.Stdout):
			return usage("gpumux top needs a terminal; for programs there are `gpumux workers --json` and `gpumux ls --running --json`")
		}
		return nil
	}
	return a.onServer(c, func(ctx context.Context, conn *connection, _ []string) error {
		const maps = 50
		look := func() (s report.Snapshot) {
			s.At = time.Now()
			if s.Workers, s.Err = conn.Fleet().Workers(ctx); s.Err != nil && !errors.As(s.Err, new(*fleet.NoWorkerError)) {
				return s
			}
			s.Maps, s.Err = conn.List(ctx, starter.ListOptions{Limit: maps, Running: true, Counts: true})
			return s
		}
		return report.Top(ctx, report.TopOptions{Title: conn.address, Every: every, Look: look, Input: a.Stdin, Output: a.terminal})
	})
}

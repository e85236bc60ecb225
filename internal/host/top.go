package host

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/internal/app"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/screen"
	"github.com/gpumux/gpumux/internal/top"
	"github.com/gpumux/gpumux/starter"
)

func topCommand(a *app.App) *cobra.Command {
	var every time.Duration
	c := &cobra.Command{
		Use:   "top",
		Short: "Show workers, slots and maps live",
		Long: `Show live, in a terminal, how far the running maps are and what each slot of each worker does: its state, its
memory of its budget, items a second, faults, and its map.

Keys: q leaves, s sorts by place, memory, items a second or faults, b shows only slots that work, arrows and
PgUp and PgDn scroll.`,
		Example: "  gpumux top\n  gpumux top --every 10s",
		Args:    cobra.NoArgs,
	}
	c.Flags().DurationVar(&every, "every", 2*time.Second, "pause between two looks at the workers")
	c.PreRunE = func(*cobra.Command, []string) error {
		switch {
		case every < 100*time.Millisecond:
			return app.Usage("--every %s: give at least 100ms", every)
		case !screen.IsTerminal(a.Stdout):
			return app.Usage("gpumux top needs a terminal; for programs there are `gpumux workers --json` and `gpumux ls --running --json`")
		}
		return nil
	}
	return a.OnServer(c, func(ctx context.Context, conn *app.Connection, _ []string) error {
		const maps = 50
		look := func(ctx context.Context) (top.Snapshot, error) {
			s := top.Snapshot{At: time.Now()}
			var err error
			if s.Workers, err = conn.Fleet().Workers(ctx); err != nil && !errors.As(err, new(*fleet.NoWorkerError)) {
				return s, err
			}
			s.Maps, err = conn.List(ctx, starter.ListOptions{Limit: maps, Running: true, Counts: true})
			return s, err
		}
		return top.Run(ctx, top.Options{Title: conn.Address, Every: every, Look: look, Input: a.Stdin, Output: a.Terminal})
	})
}

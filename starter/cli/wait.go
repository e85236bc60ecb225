package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/starter/cli/app"
)

func waitCommand(a *app.App) *cobra.Command {
	var asJSON, quiet bool
	c := &cobra.Command{
		Use:   "wait ID",
		Short: "Follow a map to its end",
		Long: `Follow a map to its end and say what it came to. The exit code is that of ` + "`gpumux map`" + `: 0 when every item
succeeded, 1 when some failed. Ctrl-C leaves the map running.`,
		Example: "  gpumux wait embed-3fa92c01d4e5 && gpumux results embed-3fa92c01d4e5 --out vectors.jsonl",
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the summary as JSON")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "no progress and no summary")
	return a.OnMap(c, func(ctx context.Context, conn *app.Connection, h *starter.Handle) error {
		a.Console.Quiet = quiet
		var ladder []string
		if h.Running() {
			if in, err := h.Input(ctx); err == nil {
				ladder = in.Rungs()
			}
		}
		end, err := follow(ctx, a, conn, h, ladder)
		if errors.Is(err, app.ErrInterrupted) {
			return detached(a, h)
		}
		if err != nil {
			return explain(a, err)
		}
		end.Causes = causesOf(ctx, a, conn, end.Summary)
		if err := tell(a, end, asJSON, a.Command("retry "+h.ID)); err != nil {
			return err
		}
		return end.exit()
	})
}

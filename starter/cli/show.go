package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/starter/cause"
	"github.com/gpumux/gpumux/starter/cli/app"
	"github.com/gpumux/gpumux/starter/cli/show"
)

func (a *program) showCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "show ID",
		Short:   "Show how a map stands, or which leases a workflow has",
		Example: "  gpumux show embed-3fa92c01d4e5",
		Args:    app.OneID,
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return a.OnServer(c, func(ctx context.Context, conn *app.Connection, args []string) error {
		d, err := conn.Show(ctx, args[0])
		if errors.As(err, new(*starter.NotMap)) {
			return a.showLeases(ctx, conn, args[0], asJSON)
		}
		if err != nil {
			return err
		}
		var causes []cause.Cause
		if d.Summary != nil {
			causes = a.causes(ctx, conn, *d.Summary)
		}
		if asJSON {
			return app.PrintJSON(a.Stdout, struct {
				*starter.Detail
				Causes []cause.Cause `json:"causes,omitempty"`
			}{d, causes})
		}
		show.Detail(a.Stdout, d, causes, conn.Link(d.ID), time.Now())
		return nil
	})
}

// showLeases shows a workflow of somebody's own.
func (a *program) showLeases(ctx context.Context, conn *app.Connection, id string, asJSON bool) error {
	l, err := conn.Leases(ctx, id)
	if err != nil {
		return err
	}
	if asJSON {
		return app.PrintJSON(a.Stdout, l)
	}
	show.Leases(a.Stdout, l, conn.Link(l.ID), time.Now())
	return nil
}

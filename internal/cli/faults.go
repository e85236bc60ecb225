package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/internal/app"
	"github.com/gpumux/gpumux/internal/show"
	"github.com/gpumux/gpumux/starter"
)

func faultsCommand(a *app.App) *cobra.Command {
	c := &cobra.Command{
		Use:   "faults ID",
		Short: "Show why items of a map failed, grouped by cause",
		Long: `Show why items of a map failed, so far or in all, grouped by cause: how many, on which devices, an example,
the end of its traceback, and what to do next.

An ID of a map with --local is looked for on this machine first; its command need not run any more.`,
		Example: "  gpumux faults embed-3fa92c01d4e5\n  gpumux faults embed-3fa92c01d4e5 --json | jq '.causes[].example.index'",
		Args:    app.OneID,
	}
	asJSON := c.Flags().Bool("json", false, "print JSON, with whole tracebacks")
	a.ConnectionFlags(c)
	a.StoreFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error { return runFaults(c.Context(), a, args[0], *asJSON) }
	return c
}

func runFaults(ctx context.Context, a *app.App, id string, asJSON bool) error {
	s, err := soFar(ctx, a, id, starter.ReadOptions{SoFar: true})
	if err != nil {
		return err
	}
	defer s.close()
	faults := show.Faults{ID: s.id, Status: s.status, Items: s.items}
	if s.summary != nil && s.summary.Failed == 0 {
		faults.Results = s.summary.Items
	} else if err := faults.Read(s.lines); err != nil {
		return err
	}
	if s.whole {
		faults.Items = faults.Results
	}
	if s.handle != nil && s.running() && faults.Results == 0 {
		// A small map keeps its results in its own history until it ends.
		if p, err := s.handle.Progress(ctx); err == nil {
			faults.Add(p.Recent...)
			faults.Results = p.Succeeded + p.Failed
		}
	}
	if s.ended != nil && s.ended.Status == starter.StatusFailed {
		faults.Fault = &s.ended.Fault
	}
	if asJSON {
		return app.PrintJSON(a.Stdout, faults)
	}
	again := ""
	switch {
	case s.summary != nil:
		again = a.Command("retry " + s.id)
	case s.whole:
		again = "the map's command with --retry"
	}
	faults.Print(a.Stdout, again)
	return nil
}

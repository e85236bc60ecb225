package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/starter/cli/app"
	"github.com/gpumux/gpumux/starter/cli/show"
)

func faultsCommand(a *app.App) *cobra.Command {
	var asJSON bool
	var kind string
	causes := starter.Causes{Examples: 1}
	c := &cobra.Command{
		Use:   "faults ID",
		Short: "Show why items of a map failed, grouped by cause",
		Long: `Show why items of a map failed, so far or in all: the failures grouped by cause, how many there are of each
and on which devices, an item that shows it, the end of its traceback, and what to do next. Failures are alike
if they are of one kind and their messages differ only in numbers and names.

An ID of a map with --local is looked for on this machine first; its command need not run any more.`,
		Example: "  gpumux faults embed-3fa92c01d4e5\n  gpumux faults embed-3fa92c01d4e5 --kind crash --limit 5\n" +
			"  gpumux faults embed-3fa92c01d4e5 --json | jq '.causes[].example.index'",
		Args: app.OneID,
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, with whole tracebacks")
	c.Flags().StringVar(&kind, "kind", "", "only failures of this kind, such as crash")
	c.Flags().IntVar(&causes.Examples, "limit", 1, "how many failed items of each cause to show")
	_ = c.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(kindNames(), cobra.ShellCompDirectiveNoFileComp))
	a.ConnectionFlags(c)
	a.StoreFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		causes.Kind = gpumux.Kind(kind)
		switch {
		case kind != "" && !slices.Contains(gpumux.Kinds(), causes.Kind):
			return app.Usage("--kind %q is unknown; use %s", kind, strings.Join(kindNames(), ", "))
		case causes.Examples < 1:
			return app.Usage("--limit %d: give at least 1", causes.Examples)
		}
		return runFaults(c.Context(), a, args[0], &causes, asJSON)
	}
	return c
}

func kindNames() (names []string) {
	for _, kind := range gpumux.Kinds() {
		names = append(names, string(kind))
	}
	return names
}

func runFaults(ctx context.Context, a *app.App, id string, causes *starter.Causes, asJSON bool) error {
	s, err := soFar(ctx, a, id)
	if err != nil {
		return err
	}
	defer s.close()
	faults := show.Faults{ID: s.id, Status: s.status, Items: s.items}
	most := int64(-1)
	if s.summary != nil {
		most = s.summary.Failed
	}
	if err := faults.Read(s.lines, causes, most); err != nil {
		return err
	}
	if s.summary != nil {
		faults.Results = s.summary.Items
	} else if s.whole {
		faults.Items = faults.Results
	}
	if s.handle != nil && s.running() && faults.Results == 0 {
		// A small map keeps its results in its own history until it ends.
		if p, err := s.handle.Progress(ctx); err == nil {
			for _, failed := range p.Recent {
				causes.Add(failed)
			}
			faults.Take(causes)
			faults.Results = p.Succeeded + p.Failed
		}
	}
	if s.ended != nil && s.ended.Status == starter.Failed {
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
	faults.Print(a.Stdout, causes.Kind, again)
	return nil
}

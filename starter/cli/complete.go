package cli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/starter/cli/show"
	"github.com/gpumux/gpumux/starter/local"
)

// completing is how long a shell waits for words that a server knows.
const completing = 2 * time.Second

// complete makes a completion of words that a server knows. Where none answers there are none.
func (a *app) complete(words func(ctx context.Context, conn *connection) ([]string, error)) cobra.CompletionFunc {
	return func(c *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(given) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(c.Context(), completing)
		defer cancel()
		conn, err := a.connect(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveDefault
		}
		defer conn.close()
		found, err := words(ctx, conn)
		if err != nil {
			return nil, cobra.ShellCompDirectiveDefault
		}
		slices.Sort(found)
		return slices.Compact(found), cobra.ShellCompDirectiveDefault
	}
}

// andHere adds the IDs of maps with --local, for commands that look for them on this machine first.
func andHere(there cobra.CompletionFunc) cobra.CompletionFunc {
	return func(c *cobra.Command, given []string, typed string) ([]string, cobra.ShellCompDirective) {
		ids, directive := there(c, given, typed)
		if states, err := local.States(); err == nil && len(given) == 0 {
			for _, state := range states {
				ids = append(ids, state.ID)
			}
		}
		return ids, directive
	}
}

// mapIDs are the IDs of the newest maps.
func mapIDs(ctx context.Context, conn *connection) (ids []string, err error) {
	const most = 50
	maps, err := conn.List(ctx, starter.ListOptions{Limit: most})
	for _, m := range maps {
		ids = append(ids, m.ID)
	}
	return ids, err
}

// taskNames are what the workers offer.
func taskNames(ctx context.Context, conn *connection) (names []string, err error) {
	workers, err := conn.Fleet().Workers(ctx)
	for _, task := range show.TasksOf(workers) {
		names = append(names, task.Name)
	}
	return names, err
}

// poolNames are the pools of the workers.
func poolNames(ctx context.Context, conn *connection) (names []string, err error) {
	workers, err := conn.Fleet().Workers(ctx)
	for _, w := range workers {
		if w.Offer != nil {
			for _, p := range w.Offer.Pools {
				names = append(names, p.Name)
			}
		}
	}
	return names, err
}

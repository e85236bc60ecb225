package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/report"
	"github.com/gpumux/gpumux/starter"
)

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

func mapIDs(ctx context.Context, conn *connection) (ids []string, err error) {
	const limit = 50
	maps, err := conn.List(ctx, starter.ListOptions{Limit: limit})
	for _, m := range maps {
		ids = append(ids, m.ID)
	}
	return ids, err
}

func taskNames(ctx context.Context, conn *connection) (names []string, err error) {
	workers, err := conn.Fleet().Workers(ctx)
	for _, task := range report.TasksOf(workers) {
		names = append(names, task.Name)
	}
	return names, err
}

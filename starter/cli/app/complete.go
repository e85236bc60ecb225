package app

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

// completing is how long a shell waits for words that a server knows.
const completing = 2 * time.Second

// Completion makes a completion of words that a server knows. Where none answers there are none.
func (a *App) Completion(words func(ctx context.Context, conn *Connection) ([]string, error)) cobra.CompletionFunc {
	return func(c *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(given) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(c.Context(), completing)
		defer cancel()
		conn, err := a.Connect(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveDefault
		}
		defer conn.Close()
		found, err := words(ctx, conn)
		if err != nil {
			return nil, cobra.ShellCompDirectiveDefault
		}
		slices.Sort(found)
		return slices.Compact(found), cobra.ShellCompDirectiveDefault
	}
}

package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// completing is how long a shell waits for words that a server knows.
const completing = 2 * time.Second

// Complete makes a completion of words that a server knows. Where none answers there are none.
func (a *App) Complete(words func(ctx context.Context, conn *Connection) ([]string, error)) cobra.CompletionFunc {
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

// OneID is the arguments of commands about one map.
func OneID(c *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("give the ID of one map, as `gpumux ls` shows it: %s", strings.TrimSpace(c.Example))
	}
	if strings.TrimSpace(args[0]) == "" {
		return errors.New("the ID is empty, perhaps from a variable that is not set; `gpumux ls` lists the maps")
	}
	return nil
}

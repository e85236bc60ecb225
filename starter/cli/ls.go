package cli

import (
	"cmp"
	"context"
	"io"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/starter/cli/screen"
)

func (a *app) lsCommand() *cobra.Command {
	var limit int
	var running, asJSON bool
	c := &cobra.Command{
		Use:     "ls",
		Short:   "List maps, the newest first",
		Example: "  gpumux ls\n  gpumux ls --running --json",
		Args:    cobra.NoArgs,
	}
	c.Flags().IntVarP(&limit, "limit", "n", 20, "the most maps to list")
	c.Flags().BoolVar(&running, "running", false, "only maps that run")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.PreRunE = func(*cobra.Command, []string) error {
		if limit < 1 {
			return usage("--limit %d: give at least 1", limit)
		}
		return nil
	}
	return a.onServer(c, func(ctx context.Context, conn *connection, _ []string) error {
		maps, err := conn.List(ctx, starter.ListOptions{Limit: limit, Running: running, Counts: true})
		if err != nil {
			return err
		}
		if asJSON {
			if maps == nil {
				maps = []starter.Listed{}
			}
			return printJSON(a.Stdout, maps)
		}
		if len(maps) == 0 {
			a.console.Say("no maps; start one with `gpumux map`")
			return nil
		}
		return printMaps(a.Stdout, maps, time.Now())
	})
}

// printMaps writes a row per map.
func printMaps(to io.Writer, maps []starter.Listed, now time.Time) error {
	rows := [][]string{{"ID", "STATUS", "ITEMS", "DONE", "FAILED", "STARTED", "TOOK", "INPUT"}}
	for _, m := range maps {
		done, failed := "-", "-"
		if m.Succeeded >= 0 {
			done, failed = humanize.Comma(m.Succeeded+m.Failed), humanize.Comma(m.Failed)
		}
		end := m.Closed
		if end.IsZero() {
			end = now
		}
		status := string(m.Status)
		if m.Paused {
			status = "paused"
		}
		rows = append(rows, []string{m.ID, status, screen.Count(m.Items), done, failed, screen.Ago(now, m.Started),
			screen.Span(max(0, end.Sub(m.Started))), screen.OneLine(cmp.Or(m.Input, "-"), 40)})
	}
	return screen.Table(to, rows)
}

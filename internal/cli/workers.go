package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/report"
)

func workersCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "workers",
		Short: "List the workers: their pools, slots and versions",
		Long: `List the workers, with a line for each of their pools: slots that run items of those that there are, the
budget of a slot, the version. A worker that was killed, or stands still, is listed for a while without pools.`,
		Example: "  gpumux workers\n  gpumux workers --json | jq -r '.[].offer.pools[]?.name'",
		Args:    cobra.NoArgs,
	}
	asJSON := c.Flags().Bool("json", false, "print JSON")
	return onWorkers(a, c, func(all []fleet.Worker) error {
		if *asJSON {
			return printJSON(a.Stdout, all)
		}
		return report.Workers(a.Stdout, all, time.Now())
	})
}

func tasksCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "tasks",
		Short: "List the tasks that the workers offer, and on which pools",
		Long: `List the tasks that the workers offer, the pools on which they do, and the mode of each: persistent keeps the
process for the next item, fresh starts one for every item.`,
		Example: "  gpumux tasks\n  gpumux tasks --json | jq -r '.[].name'",
		Args:    cobra.NoArgs,
	}
	asJSON := c.Flags().Bool("json", false, "print JSON")
	return onWorkers(a, c, func(all []fleet.Worker) error {
		tasks := report.TasksOf(all)
		if *asJSON {
			return printJSON(a.Stdout, tasks)
		}
		rows := [][]string{{"TASK", "MODE", "POOLS"}}
		for _, t := range tasks {
			rows = append(rows, []string{t.Name, strings.Join(t.Modes, ", "), strings.Join(t.Pools, ", ")})
		}
		return report.Table(a.Stdout, rows)
	})
}

// onWorkers makes c a command that prints what workers say.
func onWorkers(a *app, c *cobra.Command, print func([]fleet.Worker) error) *cobra.Command {
	return a.onServer(c, func(ctx context.Context, conn *connection, _ []string) error {
		all, err := conn.Fleet().Workers(ctx)
		if err != nil {
			return err
		}
		for _, w := range all {
			if w.Error != "" {
				a.console.Say("worker %s: %s", w.Identity, report.OneLine(w.Error, 300))
			}
		}
		return print(all)
	})
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/report"
	"github.com/gpumux/gpumux/starter"
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

func backlogCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "backlog [POOL…]",
		Short: "Show what the running maps still have to do, by pool",
		Long: `Show what the running maps still have to do, by pool, for people and for autoscalers: items that wait, items
in slots, the estimated seconds of work for one slot (0 until a map's first items have finished), and the
slots that there are. Pools without a worker count too: docs/scaling.md.

Give several namespaces with commas between them.`,
		Example: "  gpumux backlog\n  gpumux backlog gpu --namespace team-a,team-b --json | jq 'map(.seconds) | add'",
	}
	asJSON := c.Flags().Bool("json", false, "print JSON")
	a.connectionFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		all := []fleet.Backlog{}
		for namespace := range strings.SplitSeq(a.namespace, ",") {
			a.namespace = strings.TrimSpace(namespace)
			conn, err := a.connect(c.Context())
			if err != nil {
				return err
			}
			pools, silent, err := conn.Fleet().Backlog(c.Context(), args)
			conn.close()
			if err != nil {
				return err
			}
			for _, id := range silent {
				a.console.Say("map %s does not answer and is not counted; a worker must serve queue %s", id, gpumux.Queue)
			}
			all = append(all, pools...)
		}
		if *asJSON {
			return printJSON(a.Stdout, all)
		}
		rows := [][]string{{"NAMESPACE", "POOL", "MAPS", "WAITING", "RUNNING", "WORK", "SLOTS", "WORKERS"}}
		for _, b := range all {
			rows = append(rows, []string{b.Namespace, b.Pool, fmt.Sprint(b.Maps), humanize.Comma(b.Waiting), humanize.Comma(b.Running),
				report.Span(time.Duration(b.Seconds * float64(time.Second))), fmt.Sprint(b.Slots), fmt.Sprint(b.Workers)})
		}
		return report.Table(a.Stdout, rows)
	}
	return c
}

func topCommand(a *app) *cobra.Command {
	var every time.Duration
	c := &cobra.Command{
		Use:   "top",
		Short: "Show workers, slots and maps live",
		Long: `Show live, in a terminal, how far the running maps and their stages are, and what each slot of each worker
does: its state, its memory of its budget, items a second, faults, and its map.

Keys: q leaves, b shows only slots that work, arrows and PgUp and PgDn scroll.`,
		Example: "  gpumux top\n  gpumux top --every 10s",
		Args:    cobra.NoArgs,
	}
	c.Flags().DurationVar(&every, "every", 2*time.Second, "pause between two looks at the workers")
	c.PreRunE = func(*cobra.Command, []string) error {
		switch {
		case every < 100*time.Millisecond:
			return usage("--every %s: give at least 100ms", every)
		case !report.IsTerminal(a.Stdout):
			return usage("gpumux top needs a terminal; for programs there are `gpumux workers --json` and `gpumux ls --running --json`")
		}
		return nil
	}
	return a.onServer(c, func(ctx context.Context, conn *connection, _ []string) error {
		const maps = 50
		look := func(ctx context.Context) (report.Snapshot, error) {
			s := report.Snapshot{At: time.Now()}
			var err error
			if s.Workers, err = conn.Fleet().Workers(ctx); err != nil && !errors.As(err, new(*fleet.NoWorkerError)) {
				return s, err
			}
			s.Maps, err = conn.List(ctx, starter.ListOptions{Limit: maps, Running: true, Counts: true})
			return s, err
		}
		return report.Top(ctx, report.TopOptions{Title: conn.address, Every: every, Look: look, Input: a.Stdin, Output: a.terminal})
	})
}

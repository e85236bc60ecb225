package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/internal/app"
	"github.com/gpumux/gpumux/internal/files"
	"github.com/gpumux/gpumux/internal/screen"
	"github.com/gpumux/gpumux/starter"
)

func scheduleCommand(a *app.App) *cobra.Command {
	c := &cobra.Command{
		Use:   "schedule",
		Short: "Start a map again and again, at times that the server keeps",
		Long: "Start a map again and again. The schedule is Temporal's: it goes on when this machine is off.\n" +
			"Temporal's Web UI pauses it, and shows which maps it started.",
		Example: "  gpumux schedule create nightly embed --cron '0 2 * * *' --in s3://bucket/new.jsonl\n  gpumux schedule list",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(scheduleCreateCommand(a), scheduleListCommand(a),
		scheduleVerbCommand(a, "trigger", "Start the map of a schedule now, unless one still runs", "its map starts now, unless one still runs; `gpumux ls` shows it",
			starter.Schedules.Trigger),
		scheduleVerbCommand(a, "delete", "Delete a schedule; maps that it started stay", "deleted", starter.Schedules.Delete))
	return c
}

func scheduleCreateCommand(a *app.App) *cobra.Command {
	f, at := &mapFlags{}, starter.ScheduleSpec{}
	c := &cobra.Command{
		Use:   "create NAME TASK --cron WHEN --in FILE",
		Short: "Start a map at the times of a cron expression",
		Long: `Start a map at the times of a cron expression: minute, hour, day of the month, month, day of the week. The
ID of each map is the schedule's name and the time. Each has results of its own. While a map still runs, the
next one is left out.

A file in the workers' store is read when a map starts, so it may change from map to map. All other items are
read now, and are the same for each map: a file of this machine is put into the workers' store.`,
		Example: `  gpumux schedule create nightly embed --cron '0 2 * * *' --in s3://bucket/new.jsonl
  gpumux schedule create hourly check --cron @hourly --range 0:100 --pool cpu --replace
  gpumux schedule create monday report --cron '30 7 * * 1' --time-zone Europe/Berlin --in list.csv`,
	}
	flags := c.Flags()
	flags.StringArrayVar(&at.Cron, "cron", nil, "`when` to start, such as '0 2 * * *', @daily or '@every 6h'; give it again for more times")
	flags.StringVar(&at.Zone, "time-zone", "UTC", "the time zone of --cron, such as Europe/Berlin")
	replace := flags.Bool("replace", false, "change the schedule of this name if there is one; it keeps its maps, and stays paused")
	f.registerItems(flags)
	f.registerPools(flags, "")
	f.registerHow(flags)
	f.registerOptions(flags)
	a.ConnectionFlags(c)
	a.StoreFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error { return createSchedule(a, c, args, f, at, *replace) }
	return c
}

func createSchedule(a *app.App, c *cobra.Command, args []string, f *mapFlags, at starter.ScheduleSpec, replace bool) error {
	var mistaken app.Mistakes
	name := ""
	switch {
	case c.ArgsLenAtDash() >= 0:
		mistaken.Add("a command after -- goes with map --local; here the worker's file names it as a task")
	case len(args) == 0:
		mistaken.Add("NAME is missing; give the schedule a name, such as nightly, and then the TASK")
	default:
		name = args[0]
		f.readTask(&mistaken, c, args[1:])
	}
	mistaken.When(len(at.Cron) == 0, "--cron is missing; give when to start, such as --cron '0 2 * * *'")
	checkGiven(&mistaken, c)
	f.checkItems(&mistaken, c.Flags().Changed)
	f.checkInput(&mistaken, c.Flags().Changed)
	if err := mistaken.Err(); err != nil {
		return err
	}
	ctx := c.Context()
	m := starter.Map{Input: f.input}
	defer files.Remove(&m)
	conn, err := connectWithItems(ctx, a, f, &m)
	if err != nil {
		return err
	}
	defer conn.Close()
	put := conn.Schedules().Create
	if replace {
		put = conn.Schedules().Replace
	}
	if err := put(ctx, name, at, m); err != nil {
		return err
	}
	if m.Spooled != nil {
		a.Console.Note("%s was read now, and every map runs over these %d items", m.Label, m.Spooled.Items)
	}
	a.Console.Say("schedule %s starts %s at %s; `gpumux schedule list` tells when next", name, f.input.Task,
		strings.Join(at.Cron, " and "))
	return nil
}

func scheduleListCommand(a *app.App) *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List the schedules of maps", Example: "  gpumux schedule list", Args: cobra.NoArgs,
	}
	asJSON := c.Flags().Bool("json", false, "print JSON")
	return a.OnServer(c, func(ctx context.Context, conn *app.Connection, _ []string) error {
		all, err := conn.Schedules().List(ctx)
		if err != nil {
			return err
		}
		if *asJSON {
			return app.PrintJSON(a.Stdout, all)
		}
		if len(all) == 0 {
			a.Console.Say("no schedules; make one with `gpumux schedule create`")
			return nil
		}
		return listSchedules(a.Stdout, all)
	})
}

// scheduleVerbCommand does something with one schedule, and then says what was done.
func scheduleVerbCommand(a *app.App, verb, short, done string, do func(all starter.Schedules, ctx context.Context, name string) error) *cobra.Command {
	c := &cobra.Command{
		Use: verb + " NAME", Short: short, Example: "  gpumux schedule " + verb + " nightly",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("give the name of one schedule, as `gpumux schedule list` shows it")
			}
			return nil
		},
	}
	return a.OnServer(c, func(ctx context.Context, conn *app.Connection, args []string) error {
		err := do(conn.Schedules(), ctx, args[0])
		if err == nil {
			a.Console.Say("schedule %s: %s", args[0], done)
		}
		return err
	})
}

func listSchedules(to io.Writer, all []starter.ScheduleInfo) error {
	rows := [][]string{{"NAME", "TASK", "WHEN", "NEXT", "LAST MAP", "INPUT"}}
	for _, s := range all {
		last := "-"
		if len(s.Maps) > 0 {
			last = s.Maps[len(s.Maps)-1]
		}
		rows = append(rows, []string{s.Name, cmp.Or(s.Task, "-"), when(s.Times), next(s), last, screen.OneLine(cmp.Or(s.Input, "-"), 40)})
	}
	return screen.Table(to, rows)
}

func when(at starter.ScheduleSpec) string {
	return cmp.Or(strings.Join(at.Cron, ", "), "-") + " " + cmp.Or(at.Zone, "UTC")
}

func next(s starter.ScheduleInfo) string {
	switch {
	case s.Paused:
		return "paused"
	case len(s.Next) == 0:
		return "never"
	}
	return s.Next[0].Local().Format(time.DateTime)
}

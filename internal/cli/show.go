package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/report"
	"github.com/gpumux/gpumux/starter"
)

func showCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "show ID",
		Short: "Show how a map stands and why items failed",
		Long: `Show how a map stands. Failed items are grouped by cause: how many, on which devices, an example, the end of
its traceback, and what to do next. Each stage of a map has a row; ITEMS/S is what its slots can do.

An ID of a map with --local is looked for on this machine first; its command need not run any more.`,
		Example: "  gpumux show embed-3fa92c01d4e5\n  gpumux show embed-3fa92c01d4e5 --json | jq '.causes[].example.index'",
		Args:    oneID,
	}
	asJSON := c.Flags().Bool("json", false, "print JSON")
	a.storeFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if state, here := stateHere(a, args[0]); here {
			return showHere(c.Context(), a, state, *asJSON)
		}
		return showThere(c.Context(), a, args[0], *asJSON)
	}
	return c
}

func showThere(ctx context.Context, a *app, id string, asJSON bool) error {
	conn, err := a.connect(ctx)
	if err != nil {
		return notHere(a, id, err)
	}
	defer conn.close()
	d, err := conn.Show(ctx, id)
	if err != nil {
		return err
	}
	causes := causesOf(ctx, a, conn, d.ID, d.Failed, d.Summary)
	if asJSON {
		return printJSON(a.Stdout, struct {
			*starter.Detail
			Causes []starter.Cause `json:"causes,omitempty"`
		}{d, causes})
	}
	report.Detail(a.Stdout, d, causes, conn.link(d.ID), time.Now())
	if d.Summary != nil && d.Failed > 0 {
		fmt.Fprintf(a.Stdout, "\nto run the failed items again: %s\n", a.command("retry "+d.ID))
	}
	return nil
}

const looking = 5 * time.Second

// causesOf groups so many failed items of a map by cause, as far as they can be read in a
// while. None where the store cannot be read. A map that runs has no summary.
func causesOf(ctx context.Context, a *app, conn *connection, id string, failed int64, summary *gpumux.Summary) []starter.Cause {
	if failed == 0 || a.openStore(ctx, conn) != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, looking)
	defer cancel()
	var h *starter.Handle
	var err error
	if summary != nil {
		h = conn.Completed(*summary)
	} else if h, err = conn.Open(ctx, id); err != nil {
		return nil
	}
	var causes starter.Causes
	for line, err := range h.Lines(ctx, starter.ReadOptions{SoFar: summary == nil, Arrays: true}) {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			break
		}
		if err == nil {
			err = causes.AddLine(line)
		}
		if err != nil {
			return nil // the kinds are known, and the store says why when the results are fetched
		}
		if causes.Count == failed && summary != nil {
			break
		}
	}
	return causes.Sorted()
}

func showHere(ctx context.Context, a *app, state local.State, asJSON bool) error {
	s, err := soFarHere(ctx, state)
	if err != nil {
		return err
	}
	defer s.close()
	var found starter.Causes
	results := int64(0)
	for line, err := range s.lines {
		if err == nil {
			err = found.AddLine(line)
		}
		if err != nil {
			return err
		}
		results++
	}
	succeeded, failed, causes := results-found.Count, found.Count, found.Sorted()
	if asJSON {
		return printJSON(a.Stdout, struct {
			local.State
			Succeeded int64           `json:"succeeded"`
			Failed    int64           `json:"failed"`
			Causes    []starter.Cause `json:"causes,omitempty"`
		}{state, succeeded, failed, causes})
	}
	to := report.Visible(a.Stdout)
	report.Fields(to, "map", state.ID, "status", state.State, "succeeded", humanize.Comma(succeeded), "failed", humanize.Comma(failed),
		"folder", state.Folder, "command", shellLine(state.Command), "state", state.Path)
	stages := slices.ContainsFunc(causes, func(c starter.Cause) bool { return c.Example.Fault.Task != causes[0].Example.Fault.Task })
	report.Faults(to, state.ID, failed, causes, stages)
	return nil
}

func lsCommand(a *app) *cobra.Command {
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
			return printJSON(a.Stdout, maps)
		}
		if len(maps) == 0 {
			a.console.Say("no maps; start one with `gpumux map`")
			return nil
		}
		return report.Maps(a.Stdout, maps, time.Now())
	})
}

func steeringCommands(a *app) (all []*cobra.Command) {
	for _, each := range []struct {
		name, short, answer string
		ask                 func(*starter.Handle, context.Context) error
	}{
		{"pause", "Hand out no more chunks; those in flight finish",
			"map %[1]s: paused; chunks in flight finish, `gpumux resume %[1]s` goes on", (*starter.Handle).Pause},
		{"resume", "End a pause", "map %[1]s: resumed", (*starter.Handle).Resume},
		{"cancel", "Stop a map; finished items stay, and starting it again goes on",
			"map %[1]s: cancelling; `gpumux wait %[1]s` tells when it is over, `gpumux results %[1]s --partial` gives the results that it has",
			(*starter.Handle).Cancel},
	} {
		c := &cobra.Command{Use: each.name + " ID", Short: each.short, Example: "  gpumux " + each.name + " embed-3fa92c01d4e5"}
		all = append(all, a.onMap(c, func(ctx context.Context, _ *connection, h *starter.Handle) error {
			if err := each.ask(h, ctx); err != nil {
				return err
			}
			a.console.Say(each.answer, h.ID)
			return nil
		}))
	}
	return all
}

func workersCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "workers",
		Short: "List the workers: their pools, slots, versions and tasks",
		Long: `List the workers, with a line for each of their pools: slots that run items of those that there are, the
budget of a slot, the version, and the tasks as far as there is room; --json has them all, with their modes.
A worker that was killed, or stands still, is listed for a while without pools.`,
		Example: "  gpumux workers\n  gpumux workers --json | jq -r '.[].offer.tasks[]?'",
		Args:    cobra.NoArgs,
	}
	asJSON := c.Flags().Bool("json", false, "print JSON")
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
		if *asJSON {
			return printJSON(a.Stdout, all)
		}
		return report.Workers(a.Stdout, all, time.Now())
	})
}

func topCommand(a *app) *cobra.Command {
	var every time.Duration
	c := &cobra.Command{
		Use:   "top",
		Short: "Show workers, slots and maps live",
		Long: `Show live, in a terminal, how far the running maps and their stages are, and what each slot of each worker
does: its state, its memory of its budget, items a second, faults, and its map.

Keys: q leaves; arrows, PgUp, PgDn, Home and End scroll, the right arrow to columns that have no room.`,
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
		look := func() (s report.Snapshot) {
			s.At = time.Now()
			if s.Workers, s.Err = conn.Fleet().Workers(ctx); s.Err != nil && !errors.As(s.Err, new(*fleet.NoWorkerError)) {
				return s
			}
			s.Maps, s.Err = conn.List(ctx, starter.ListOptions{Limit: maps, Running: true, Counts: true})
			return s
		}
		return report.Top(ctx, report.TopOptions{Title: conn.address, Every: every, Look: look, Input: a.Stdin, Output: a.terminal})
	})
}

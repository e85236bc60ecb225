package cli

import (
	"cmp"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/report"
	"github.com/gpumux/gpumux/starter"
)

func localCommand(a *app) *cobra.Command {
	var remove, all, asJSON bool
	c := &cobra.Command{
		Use:   "local [--remove ID... | --remove --all]",
		Short: "List what `map --local` left to go on with, or remove it",
		Long: `List the maps that commands with --local left to go on with, and those that --id keeps: where each command
was given, and how much disk it takes. --remove deletes the state of those named; finished items of theirs
that were not written are lost. They lie below ~/.local/state, or XDG_STATE_HOME.

Maps without --id that nobody used for 30 days go by themselves. So do, the oldest first, those whose results
were written and that stay for a retry of what failed, when they take more than 1 GiB in all.`,
		Example: "  gpumux local\n  gpumux local --remove map-0123456789ab\n  gpumux local --remove --all",
	}
	c.Flags().BoolVar(&remove, "remove", false, "delete the state of the maps named")
	c.Flags().BoolVar(&all, "all", false, "with --remove: of every map that does not run")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, ids []string) error {
		switch {
		case !remove && (all || len(ids) > 0):
			return usage("give --remove with it; `gpumux local` alone lists")
		case remove && all == (len(ids) > 0):
			return usage("--remove: give the IDs of maps as `gpumux local` lists them, or --all")
		}
		states, err := local.States()
		if err != nil {
			return err
		}
		if remove {
			return removeLocal(a, states, ids)
		}
		if asJSON {
			return printJSON(a.Stdout, states)
		}
		if len(states) == 0 {
			root, err := local.Folder("local")
			a.console.Say("no local map has anything left in %s", root)
			return err
		}
		return printLocal(a.Stdout, states, time.Now())
	}
	return c
}

// removeLocal deletes the folders of the maps named, or of all; none if one cannot go.
func removeLocal(a *app, states []local.State, ids []string) error {
	var m mistakes
	var gone []local.State
	for _, id := range ids {
		switch at := slices.IndexFunc(states, func(s local.State) bool { return s.ID == id }); {
		case at < 0:
			m.add("--remove %s: there is no such local map; `gpumux local` lists them", id)
		case states[at].State == "running":
			m.add("--remove %s: it runs; stop its command first", id)
		default:
			gone = append(gone, states[at])
		}
	}
	if err := m.err(); err != nil {
		return err
	}
	if len(ids) == 0 {
		gone = slices.DeleteFunc(states, func(s local.State) bool { return s.State == "running" })
	}
	var bytes int64
	for _, s := range gone {
		if err := s.Remove(); err != nil {
			return err
		}
		bytes += s.Bytes
	}
	a.console.Say("removed %d local maps, %s", len(gone), humanize.IBytes(uint64(bytes)))
	return nil
}

func printLocal(to io.Writer, states []local.State, now time.Time) error {
	rows := [][]string{{"ID", "STATE", "SIZE", "USED", "FOLDER", "COMMAND"}}
	for _, s := range states {
		rows = append(rows, []string{s.ID, s.State, humanize.IBytes(uint64(s.Bytes)), report.Ago(now, s.Used), cmp.Or(s.Folder, "-"),
			cmp.Or(shellLine(s.Command), "-")})
	}
	return report.Table(to, rows)
}

// leastAge keeps the items that a command uploads before its map begins.
const leastAge = time.Hour

func pruneCommand(a *app) *cobra.Command {
	var olderThan string
	var dryRun bool
	c := &cobra.Command{
		Use:   "prune --older-than AGE",
		Short: "Delete what maps left in the store that ended long ago",
		Long: `Delete from the workers' store the results of maps that ended longer ago than AGE, and inputs that were
put there longer ago. It keeps what maps use that run or ended since, as far as Temporal knows them. An input
for a schedule belongs under a name outside of sources/. It asks one namespace, so do not use it on a store
that several share.

What maps with --local left on this machine is deleted by gpumux local --remove.`,
		Example: "  gpumux prune --older-than 30d --dry-run\n  gpumux prune --older-than 30d",
		Args:    cobra.NoArgs,
	}
	flags := c.Flags()
	flags.StringVar(&olderThan, "older-than", "", "how long ago, such as 30d or 36h; at least 1h")
	flags.BoolVar(&dryRun, "dry-run", false, "delete nothing, and list what would go")
	a.storeFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		age, err := parseAge(olderThan)
		if err != nil {
			return err
		}
		conn, err := a.connectWithStore(c.Context())
		if err != nil {
			return err
		}
		defer conn.close()
		gone, err := conn.Prune(c.Context(), starter.PruneOptions{Before: time.Now().Add(-age), DryRun: dryRun})
		if err != nil {
			return err
		}
		return printPruned(a, gone, dryRun)
	}
	return c
}

func parseAge(text string) (time.Duration, error) {
	days, are := strings.CutSuffix(text, "d")
	if are {
		days += "h"
	}
	age, err := time.ParseDuration(days)
	if are {
		age *= 24
	}
	if err != nil || age < leastAge {
		return 0, usage("--older-than %q: give an age of at least 1h, such as 30d or 36h", text)
	}
	return age, nil
}

func printPruned(a *app, gone []starter.Pruned, dryRun bool) error {
	var bytes int64
	rows := [][]string{{"KEY", "SIZE", "LAST WRITTEN"}}
	for _, p := range gone {
		bytes += p.Bytes
		rows = append(rows, []string{p.Key, humanize.IBytes(uint64(p.Bytes)), report.Ago(time.Now(), p.Changed)})
	}
	if dryRun && len(gone) > 0 {
		if err := report.Table(a.Stdout, rows); err != nil {
			return err
		}
	}
	verb := "deleted"
	if dryRun {
		verb = "would delete"
	}
	a.console.Say("%s %s of old maps and their inputs (%d)", verb, humanize.IBytes(uint64(bytes)), len(gone))
	return nil
}

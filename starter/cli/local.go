package cli

import (
	"cmp"
	"io"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/starter/cli/app"
	"github.com/gpumux/gpumux/starter/cli/screen"
	"github.com/gpumux/gpumux/starter/local"
)

func localCommand(a *app.App) *cobra.Command {
	var remove, all, asJSON bool
	c := &cobra.Command{
		Use:   "local [--remove ID... | --remove --all]",
		Short: "List what `map --local` left to go on with, or remove it",
		Long: `List the maps that commands with --local left to go on with, and those that --id keeps: where each command
was given, so that the same command goes on, and how much disk it takes. With --remove delete the state of
those named; finished items of theirs that were not written are lost. Maps with a --data folder of their own
are not among them.`,
		Example: "  gpumux local\n  gpumux local --remove map-0123456789ab\n  gpumux local --remove --all",
	}
	c.Flags().BoolVar(&remove, "remove", false, "delete the state of the maps named")
	c.Flags().BoolVar(&all, "all", false, "with --remove: of every map that does not run")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.RunE = func(c *cobra.Command, ids []string) error {
		switch {
		case !remove && (all || len(ids) > 0):
			return app.Usage("give --remove with it; `gpumux local` alone lists")
		case remove && all == (len(ids) > 0):
			return app.Usage("--remove: give the IDs of maps as `gpumux local` lists them, or --all")
		}
		states, err := local.States()
		if err != nil {
			return err
		}
		if remove {
			return removeLocal(a, states, ids)
		}
		if asJSON {
			return app.PrintJSON(a.Stdout, states)
		}
		if len(states) == 0 {
			root, err := local.Folder("local")
			a.Console.Say("no local map has anything left in %s", root)
			return err
		}
		return printLocal(a.Stdout, states, time.Now())
	}
	return c
}

// removeLocal deletes all of the folders or none.
func removeLocal(a *app.App, states []local.State, ids []string) error {
	var m app.Mistakes
	var gone []local.State
	for _, id := range ids {
		switch at := slices.IndexFunc(states, func(s local.State) bool { return s.ID == id }); {
		case at < 0:
			m.Add("--remove %s: there is no such local map; `gpumux local` lists them", id)
		case states[at].State == "running":
			m.Add("--remove %s: it runs; stop its command first", id)
		default:
			gone = append(gone, states[at])
		}
	}
	if err := m.Err(); err != nil {
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
	a.Console.Say("removed %d local maps, %s", len(gone), humanize.IBytes(uint64(bytes)))
	return nil
}

func printLocal(to io.Writer, states []local.State, now time.Time) error {
	rows := [][]string{{"ID", "STATE", "SIZE", "USED", "FOLDER", "COMMAND"}}
	for _, s := range states {
		rows = append(rows, []string{s.ID, s.State, humanize.IBytes(uint64(s.Bytes)), screen.Ago(now, s.Used), cmp.Or(s.Folder, "-"),
			cmp.Or(app.ShellLine(s.Command), "-")})
	}
	return screen.Table(to, rows)
}

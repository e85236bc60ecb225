package cli

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Tree returns all commands with their help, for manuals and completions.
func Tree() *cobra.Command { return rootCommand(newApp(Options{Args: []string{}})) }

func rootCommand(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "gpumux",
		Short: "Map a task over many items on GPUs, and survive what GPUs do to you",
		Long: `gpumux maps a task over many items on GPUs and survives out-of-memory, leaked memory, crashed
processes, lost devices and killed hosts: finished items are kept and never run again.

Without a server:   gpumux map embed.py:embed --in items.jsonl --local
With one:           gpumux dev --tasks .        then: gpumux map embed:embed --in items.jsonl --pool cpu
On many hosts:      gpumux worker -f gpumux.yaml on each, with one Temporal for all

Exit codes: 0 all went well, 1 items failed, 2 usage or bad input, 3 something needed could not be
reached or started, 4 the map or the command failed as a whole, 130 interrupted.`,
		Example:           "  gpumux map embed.py:embed --in items.jsonl --local",
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
		PersistentPreRun:  func(*cobra.Command, []string) { a.ran = true },
		RunE: func(c *cobra.Command, _ []string) error {
			return c.Help()
		},
	}
	root.SetFlagErrorFunc(flagMistake)
	root.PersistentFlags().BoolVarP(&a.verbose, "verbose", "v", false, "show the log of server and workers in this process")
	root.AddGroup(&cobra.Group{ID: "map", Title: "Maps:"}, &cobra.Group{ID: "host", Title: "Servers and workers:"})
	for _, c := range []*cobra.Command{
		mapCommand(a), runCommand(a), streamCommand(a), lsCommand(a), showCommand(a), logsCommand(a), waitCommand(a),
		resultsCommand(a), pauseCommand(a), resumeCommand(a), cancelCommand(a), retryCommand(a), pruneCommand(a),
		localCommand(a),
	} {
		c.GroupID = "map"
		root.AddCommand(c)
	}
	for _, c := range append([]*cobra.Command{devCommand(a)}, hostCommands(a)...) {
		c.GroupID = "host"
		root.AddCommand(c)
	}
	root.AddCommand(versionCommand(a))
	for _, c := range root.Commands() {
		switch {
		case slices.Contains([]string{"show", "logs", "results"}, c.Name()):
			c.ValidArgsFunction = andHere(a.completion(mapIDs))
		case strings.HasSuffix(c.Use, " ID"):
			c.ValidArgsFunction = a.completion(mapIDs)
		case c.Name() == "map" || c.Name() == "run":
			c.ValidArgsFunction = a.completion(taskNames)
		}
	}
	return root
}

func versionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  gpumux version",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			kind := "client and worker"
			if a.Local != nil {
				kind = "all in one, with the Temporal server"
			}
			_, err := fmt.Fprintf(a.Stdout, "gpumux %s (%s, %s %s/%s)\n", a.Version, kind, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

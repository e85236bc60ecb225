package cli

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// commands lists the tree in the order of the help.
func commands(c *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, child := range c.Commands() {
		if child.IsAvailableCommand() && child.Name() != "help" {
			all = append(all, child)
			all = append(all, commands(child)...)
		}
	}
	return all
}

func newTree() *cobra.Command {
	return rootCommand(newApp(Options{Version: "development"}))
}

func TestCommands_EachHasAnExampleAndHelp(t *testing.T) {
	t.Setenv("GPUMUX_STORE", "")
	for _, c := range commands(newTree()) {
		require.NotEmpty(t, c.Example, c.CommandPath())
		require.NotEmpty(t, c.Short, c.CommandPath())
		require.Contains(t, c.Example, c.CommandPath(), c.CommandPath())
		for _, line := range strings.Split(c.Long, "\n") {
			require.LessOrEqual(t, len([]rune(line)), 110, "%s: %q", c.CommandPath(), line)
		}
	}
}

// TestDocs_CommandLine keeps docs/cli.md the same as the help. To write it: go test
// ./internal/cli -run TestDocs -update
func TestDocs_CommandLine(t *testing.T) {
	t.Setenv("GPUMUX_STORE", "")
	root := newTree()
	var b strings.Builder
	b.WriteString("# Command line\n\nWritten from the help of the commands; `go test ./internal/cli -run TestDocs -update` writes it anew.\n\n")
	intro, _, _ := strings.Cut(root.Long, "\n\nExit codes:") // the table has them
	fmt.Fprintf(&b, "```text\n%s\n```\n", intro)
	b.WriteString(`
| exit code | means |
|---|---|
| 0 | every item succeeded, or the command did what it was asked |
| 1 | items failed; every item has its result or its fault |
| 2 | usage or bad input, also of a task whose code does not load or was edited while its map ran; what has finished is kept |
| 3 | something needed could not be reached or started |
| 4 | the map failed as a whole, or the command did |
| 130 | interrupted by Ctrl-C or SIGTERM |

Data goes to standard output, all else to standard error.

| variable | means |
|---|---|
| TEMPORAL_CONFIG_FILE, TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_API_KEY, TEMPORAL_TLS…, TEMPORAL_PROFILE | Temporal's own conventions; flags win |
| GPUMUX_STORE | default of --store |
| GPUMUX_UI | address of the Web UI, for links to maps |
| GPUMUX_HOST_RESERVE | [what of the host](memory.md#what-keeps-the-host-alive) stays free of task processes, such as 4GiB; 0 for none |
| XDG_STATE_HOME | where dev and --local keep their state, in gpumux/; default ~/.local/state |
`)
	shared, maps := sharedFlags(root), meanings(root)
	fmt.Fprintf(&b, "\nMany commands have these:\n\n```text\n%s```\n", shared.FlagUsages())
	for _, c := range commands(root) {
		text := c.Long
		if text == "" {
			text = c.Short + "."
		}
		fmt.Fprintf(&b, "\n## %s\n\n```text\n%s\n```\n\n", c.CommandPath(), text)
		fmt.Fprintf(&b, "```sh\n%s\n```\n", strings.ReplaceAll(strings.TrimPrefix(c.Example, "  "), "\n  ", "\n"))
		var also, asMap []string
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		c.NonInheritedFlags().VisitAll(func(flag *pflag.Flag) {
			if flag.Hidden {
				return
			}
			if same := shared.Lookup(flag.Name); same != nil && same.Usage == flag.Usage {
				also = append(also, "--"+flag.Name)
			} else if c.Name() != "map" && maps[flag.Name] == meaning(flag) {
				asMap = append(asMap, "--"+flag.Name)
			} else {
				flags.AddFlag(flag)
			}
		})
		if usages := flags.FlagUsages(); usages != "" {
			fmt.Fprintf(&b, "\n```text\n%s```\n", usages)
		}
		if len(asMap) > 0 {
			fmt.Fprintf(&b, "\nAs for [gpumux map](#gpumux-map): %s.\n", strings.Join(asMap, ", "))
		}
		if len(also) > 0 {
			fmt.Fprintf(&b, "\nAlso %s.\n", strings.Join(also, ", "))
		}
	}
	sameAs(t, filepath.Join("..", "..", "docs", "cli.md"), b.String())
}

// meanings are what the flags of map do, by name.
func meanings(root *cobra.Command) map[string]string {
	all := map[string]string{}
	for _, c := range commands(root) {
		if c.Name() == "map" {
			c.NonInheritedFlags().VisitAll(func(flag *pflag.Flag) { all[flag.Name] = meaning(flag) })
		}
	}
	return all
}

// meaning is what a flag does, and its default, without the flag that it goes with.
func meaning(flag *pflag.Flag) string {
	usage := strings.TrimPrefix(strings.TrimPrefix(flag.Usage, "with --local: "), "with --in: ")
	return usage + flag.DefValue
}

// sharedFlags are those that at least six commands have with the same words.
func sharedFlags(root *cobra.Command) *pflag.FlagSet {
	shared, seen := pflag.NewFlagSet("", pflag.ContinueOnError), map[string]int{}
	for _, c := range commands(root) {
		c.NonInheritedFlags().VisitAll(func(flag *pflag.Flag) {
			if seen[flag.Name+flag.Usage]++; seen[flag.Name+flag.Usage] == 6 {
				shared.AddFlag(flag)
			}
		})
	}
	return shared
}

// Package cli is the command line of gpumux: all commands, thin over starter, workers and
// internal/local.
//
// It owns the flags, how a command finds its server, items in files and streams, files of
// results, which appear whole or not at all, bench with its workloads, how a command is
// interrupted, and the exit code of an error. It never decides how a map runs. Main
// returns when the command is done or interrupted: the first Ctrl-C stops cleanly, the
// second at once.
//
// Data goes to standard output, all else to standard error.
package cli

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/columns"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/report"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/workers/config"
)

// firstCollection is the memory at which garbage is collected for the first time. A short
// command ends before; it would spend a fifth of its processor time on that.
const firstCollection = 128 << 20

// collectLate postpones the garbage collector, which then goes on as the environment
// says.
func collectLate() {
	percent, limit := debug.SetGCPercent(-1), debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(limit, firstCollection))
	runtime.AddCleanup(&[]byte{}, func(struct{}) {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}, struct{}{})
}

func Main(o Options) int {
	collectLate()
	a := newApp(o)
	ctx, release := a.interruptible()
	defer release()
	return int(a.execute(ctx))
}

func (a *app) execute(ctx context.Context) exitCode {
	root := rootCommand(a)
	root.SetArgs(a.Args)
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.console)
	var command *cobra.Command
	var err error
	over := make(chan struct{})
	go func() {
		defer close(over)
		command, err = root.ExecuteContextC(ctx)
		a.console.Close()
	}()
	select {
	case <-over:
	case <-a.hard.Done():
		select {
		case <-over:
		case <-time.After(lastGrace):
			return exitInterrupted
		}
	}
	if err == nil {
		return exitOK
	}
	if !a.ran { // cobra's own: unknown command, wrong number of arguments, unknown flag
		err = usage("%s", err)
	}
	var exit exitCode
	if errors.Is(context.Cause(ctx), errInterrupted) && !errors.As(err, &exit) {
		err = errInterrupted // whatever the signal made fail
	}
	if !errors.As(err, &exit) && !errors.Is(err, errInterrupted) {
		a.console.Say("gpumux: %s", strings.TrimRight(err.Error(), "\n"))
		if errors.As(err, new(*local.MistakeError)) {
			fmt.Fprintf(a.console, "see `%s --help`\n", command.CommandPath())
		}
	}
	return codeOf(err)
}

// lastGrace is the time between the second signal and the end.
const lastGrace = time.Second

func codeOf(err error) exitCode {
	var exit exitCode
	var ended *starter.EndedError
	is := func(kinds ...any) bool {
		return slices.ContainsFunc(kinds, func(kind any) bool { return errors.As(err, kind) })
	}
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return exit
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	case is(new(*local.MistakeError), new(*gpumux.InputError), new(*gpumux.SourceError), new(*config.Error), new(*starter.RefusedError),
		new(*starter.NotFoundError)):
		return exitUsage
	case errors.As(err, &ended) && ended.Fault.Kind == gpumux.FaultBadInput:
		return exitUsage
	case is(new(*columns.UnfitError)):
		return exitFailed
	case is(new(*fleet.ConnectError), new(*starter.NoStoreError), new(*fleet.NoWorkerError), new(*local.UnavailableError)),
		errors.Is(err, context.DeadlineExceeded):
		return exitUnavailable
	}
	return exitBroken
}

func rootCommand(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "gpumux",
		Short: "Map a task over many items on GPUs, and survive what GPUs do to you",
		Long: `gpumux maps a task over many items on GPUs and survives out-of-memory, leaked memory, crashed
processes, lost devices and killed hosts: finished items are kept and never run again.

Without a server:   gpumux map embed.py:embed --in items.jsonl --local
With one:           gpumux dev --tasks .        then: gpumux map embed:embed --in items.jsonl --pool cpu
On a few hosts:     gpumux dev --listen HOST on one, gpumux worker --tasks . --connect FILE on others
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
	kind := "client and worker"
	if a.Local != nil {
		kind = "all in one, with the Temporal server"
	}
	root.Version = fmt.Sprintf("%s (%s, %s %s/%s)", a.Version, kind, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	root.SetVersionTemplate("gpumux {{.Version}}\n")
	root.SetFlagErrorFunc(flagMistake)
	root.PersistentFlags().BoolVarP(&a.verbose, "verbose", "v", false, "show the log of server and workers in this process")
	root.AddGroup(&cobra.Group{ID: "map", Title: "Maps:"}, &cobra.Group{ID: "host", Title: "Servers and workers:"})
	add := func(group string, all ...*cobra.Command) {
		for _, c := range all {
			c.GroupID = group
		}
		root.AddCommand(all...)
	}
	add("map", mapCommand(a), llmCommand(a), batchesCommand(a), streamCommand(a), lsCommand(a), showCommand(a), waitCommand(a), resultsCommand(a))
	add("map", steeringCommands(a)...)
	add("map", retryCommand(a), pruneCommand(a), localCommand(a))
	add("host", devCommand(a), workerCommand(a), workersCommand(a), topCommand(a), gpusCommand(a), doctorCommand(a), benchCommand(a))
	return root
}

// flagMistake says what is wrong with a flag's value, and of a time what was meant.
func flagMistake(_ *cobra.Command, err error) error {
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	name, value := invalid.GetFlag().Name, report.OneLine(invalid.GetValue(), 100)
	if invalid.GetFlag().Value.Type() != "duration" {
		return fmt.Errorf("invalid argument %q for \"--%s\" flag: %s", value, name, strings.ReplaceAll(invalid.Unwrap().Error(), invalid.GetValue(), value))
	}
	if _, bare := time.ParseDuration(value + "s"); bare == nil {
		return fmt.Errorf("--%s %s has no unit; write %ss", name, value, value)
	}
	return fmt.Errorf("--%s %q is no time; write 90s, 5m or 2h", name, value)
}

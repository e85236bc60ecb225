// Package cli is the command line of gpumux: all commands, thin over starter, workers and
// internal/local.
//
// It owns the flags, how a command finds its server, items in files and streams, files of
// results, which appear whole or not at all, bench with its workloads, how a command is
// interrupted, and the exit code of an error. It never decides how a map runs. Main returns
// when the command is done or interrupted: the first Ctrl-C stops cleanly, the second at
// once.
//
// Data goes to standard output, all else to standard error.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/local"
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

// Main runs one command and returns its exit code.
func Main(o Options) int {
	collectLate()
	a := newApp(o)
	ctx, release := a.interruptible()
	defer release()
	ctx, sent, failed := exportTraces(ctx, cmp.Or(o.Version, "development"), func(err error) {
		a.console.Say("note: traces do not reach their collector: %v", err)
	})
	if failed != nil {
		a.console.Say("gpumux: %v", failed)
		return exitUsage
	}
	defer sent()
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

func codeOf(err error) int {
	var exit exitCode
	var ended *starter.EndedError
	is := func(kinds ...any) bool {
		return slices.ContainsFunc(kinds, func(kind any) bool { return errors.As(err, kind) })
	}
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return int(exit)
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	case is(new(*local.MistakeError), new(*gpumux.InputError), new(*gpumux.SourceError), new(*config.Error), new(*starter.OtherMapError),
		new(*starter.OtherEditionError), new(*starter.NotFoundError), new(*starter.NothingToRetryError), new(*starter.StillRunningError),
		new(*fleet.KeysError)):
		return exitUsage
	case errors.As(err, &ended) && ended.Fault.Kind == gpumux.FaultBadInput:
		return exitUsage
	case is(new(*fleet.ConnectError), new(*starter.NoStoreError), new(*fleet.NoWorkerError), new(*local.UnavailableError)),
		errors.Is(err, context.DeadlineExceeded):
		return exitUnavailable
	}
	return exitBroken
}

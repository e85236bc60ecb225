// Package cli is the command line of gpumux: the tree of its commands, and those about
// maps, thin over starter and internal/local.
//
// It owns the flags of those commands, how a command ends, and the exit code of an error.
// It never decides how a map runs. Main returns when the command is done or
// interrupted: the first Ctrl-C stops cleanly, the second at once.
//
// Data goes to standard output, all else to standard error. The exit codes are those of
// package app.
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
	"github.com/gpumux/gpumux/internal/app"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/items"
	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/internal/otlp"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/workers/config"
)

// Options of Main.
type Options = app.Options

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
	a := app.New(o)
	ctx, release := a.Interruptible()
	defer release()
	ctx, sent, failed := otlp.Start(ctx, cmp.Or(o.Version, "development"), func(err error) {
		a.Console.Say("note: traces do not reach their collector: %v", err)
	})
	if failed != nil {
		a.Console.Say("gpumux: %v", failed)
		return app.ExitUsage
	}
	defer sent()
	root := rootCommand(a)
	root.SetArgs(a.Args)
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Console)
	var command *cobra.Command
	var err error
	over := make(chan struct{})
	go func() {
		defer close(over)
		command, err = root.ExecuteContextC(ctx)
		a.Console.Close()
	}()
	select {
	case <-over:
	case <-a.Hard.Done():
		select {
		case <-over:
		case <-time.After(lastGrace):
			return app.ExitInterrupted
		}
	}
	if err == nil {
		return app.ExitOK
	}
	if !a.Ran { // cobra's own: unknown command, wrong number of arguments, unknown flag
		err = app.Usage("%s", err)
	}
	var exit app.Exit
	if errors.Is(context.Cause(ctx), app.ErrInterrupted) && !errors.As(err, &exit) {
		err = app.ErrInterrupted // whatever the signal made fail
	}
	if !errors.As(err, &exit) && !errors.Is(err, app.ErrInterrupted) {
		a.Console.Say("gpumux: %s", strings.TrimRight(err.Error(), "\n"))
		if errors.As(err, new(*local.MistakeError)) {
			fmt.Fprintf(a.Console, "see `%s --help`\n", command.CommandPath())
		}
	}
	return exitCode(err)
}

// lastGrace is the time between the second signal and the end.
const lastGrace = time.Second

func exitCode(err error) int {
	var exit app.Exit
	var ended *starter.EndedError
	is := func(kinds ...any) bool {
		return slices.ContainsFunc(kinds, func(kind any) bool { return errors.As(err, kind) })
	}
	switch {
	case err == nil:
		return app.ExitOK
	case errors.As(err, &exit):
		return int(exit)
	case errors.Is(err, app.ErrInterrupted):
		return app.ExitInterrupted
	case is(new(*local.MistakeError), new(*gpumux.InputError), new(*items.SourceError), new(*config.Error), new(*starter.OtherMapError),
		new(*starter.OtherEditionError), new(*starter.NotFoundError), new(*starter.NothingToRetryError), new(*starter.StillRunningError),
		new(*fleet.KeysError)):
		return app.ExitUsage
	case errors.As(err, &ended) && ended.Fault.Kind == gpumux.FaultBadInput:
		return app.ExitUsage
	case is(new(*fleet.ConnectError), new(*starter.NoStoreError), new(*fleet.NoWorkerError), new(*local.UnavailableError)),
		errors.Is(err, context.DeadlineExceeded):
		return app.ExitUnavailable
	}
	return app.ExitBroken
}

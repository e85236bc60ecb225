package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/starter/bench"
	"github.com/gpumux/gpumux/starter/connect"
	"github.com/gpumux/gpumux/starter/fleet"
	"github.com/gpumux/gpumux/starter/local"
	"github.com/gpumux/gpumux/store"
	"github.com/gpumux/gpumux/workers/config"
)

// Exit codes.
const (
	// ExitOK: every item succeeded, or the command did what it was asked.
	ExitOK = 0
	// ExitFailed: some items failed, or the map did.
	ExitFailed = 1
	// ExitUsage: the command or its input cannot work as given.
	ExitUsage = 2
	// ExitUnavailable: what is needed could not be reached or started.
	ExitUnavailable = 3
	// ExitInterrupted: a signal ended the command.
	ExitInterrupted = 130
)

// usage is one mistake in the command line.
func usage(format string, args ...any) error {
	return &local.Mistake{Problems: []string{fmt.Sprintf(format, args...)}}
}

// unavailable is about what could not be reached or started.
func unavailable(err error) error { return &local.Unavailable{Err: err} }

// exitError ends the command with a code; its message has been printed.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// errInterrupted is the cause of a context that a signal ended.
var errInterrupted = errors.New("interrupted")

// exitCode is what an error means for the caller of the program.
func exitCode(err error) int {
	var exit exitError
	var failed *starter.MapFailed
	is := func(kinds ...any) bool {
		return slices.ContainsFunc(kinds, func(kind any) bool { return errors.As(err, kind) })
	}
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &exit):
		return int(exit)
	case errors.Is(err, errInterrupted):
		return ExitInterrupted
	case is(new(*local.Mistake), new(*gpumux.InputError), new(*store.SourceError), new(*config.Error), new(*starter.OtherMap),
		new(*starter.OtherEdition), new(*starter.NotFound), new(*starter.NothingToRetry), new(*starter.StillRunning),
		new(*starter.ScheduleError)):
		return ExitUsage
	case errors.As(err, &failed):
		if failed.Fault.Kind == gpumux.BadInput {
			return ExitUsage
		}
		return ExitFailed
	case is(new(*connect.Error), new(*starter.NoStore), new(*fleet.NoWorker), new(*local.Unavailable), new(*bench.Lacking)),
		errors.Is(err, context.DeadlineExceeded):
		return ExitUnavailable
	}
	return ExitFailed
}

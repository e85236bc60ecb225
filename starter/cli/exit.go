package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter"
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
	var mistake *local.Mistake
	var input *gpumux.InputError
	var source *store.SourceError
	var file *config.Error
	var failed *starter.MapFailed
	var other *starter.OtherMap
	var edition *starter.OtherEdition
	var missing *starter.NotFound
	var noRetry *starter.NothingToRetry
	var running *starter.StillRunning
	var connect *starter.ConnectError
	var noStore *starter.NoStore
	var noWorker *starter.NoWorker
	var away *local.Unavailable
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &exit):
		return int(exit)
	case errors.Is(err, errInterrupted):
		return ExitInterrupted
	case errors.As(err, &mistake), errors.As(err, &input), errors.As(err, &source), errors.As(err, &file),
		errors.As(err, &other), errors.As(err, &edition), errors.As(err, &missing), errors.As(err, &noRetry), errors.As(err, &running):
		return ExitUsage
	case errors.As(err, &failed):
		if failed.Fault.Kind == gpumux.BadInput {
			return ExitUsage
		}
		return ExitFailed
	case errors.As(err, &connect), errors.As(err, &noStore), errors.As(err, &noWorker), errors.As(err, &away),
		errors.Is(err, context.DeadlineExceeded):
		return ExitUnavailable
	}
	return ExitFailed
}

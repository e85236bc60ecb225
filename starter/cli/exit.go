package cli

import (
	"context"
	"errors"
	"slices"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/starter/bench"
	"github.com/gpumux/gpumux/starter/cli/app"
	"github.com/gpumux/gpumux/starter/fleet"
	"github.com/gpumux/gpumux/starter/local"
	"github.com/gpumux/gpumux/store"
	"github.com/gpumux/gpumux/workers/config"
)

// exitCode is what an error means for the caller of the program.
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
	case is(new(*local.MistakeError), new(*gpumux.InputError), new(*store.SourceError), new(*config.Error), new(*starter.OtherMapError),
		new(*starter.OtherEditionError), new(*starter.NotFoundError), new(*starter.NothingToRetryError), new(*starter.StillRunningError),
		new(*starter.ScheduleError)):
		return app.ExitUsage
	case errors.As(err, &ended) && ended.Fault.Kind == gpumux.BadInput:
		return app.ExitUsage
	case is(new(*fleet.ConnectError), new(*starter.NoStoreError), new(*fleet.NoWorkerError), new(*local.UnavailableError), new(*bench.LackingError)),
		errors.Is(err, context.DeadlineExceeded):
		return app.ExitUnavailable
	}
	return app.ExitBroken
}

package cli

import (
	"context"
	"errors"
	"slices"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/items"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/starter/bench"
	"github.com/gpumux/gpumux/starter/cli/app"
	"github.com/gpumux/gpumux/starter/connect"
	"github.com/gpumux/gpumux/starter/fleet"
	"github.com/gpumux/gpumux/starter/local"
	"github.com/gpumux/gpumux/workers/config"
)

// exitCode is what an error means for the caller of the program.
func exitCode(err error) int {
	var exit app.Exit
	var failed *starter.MapFailed
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
	case is(new(*local.Mistake), new(*gpumux.InputError), new(*items.SourceError), new(*config.Error), new(*starter.OtherMap),
		new(*starter.OtherEdition), new(*starter.NotFound), new(*starter.NothingToRetry), new(*starter.StillRunning),
		new(*starter.ScheduleError)):
		return app.ExitUsage
	case errors.As(err, &failed):
		if failed.Fault.Kind == gpumux.BadInput {
			return app.ExitUsage
		}
		return app.ExitBroken
	case is(new(*connect.Error), new(*starter.NoStore), new(*fleet.NoWorker), new(*local.Unavailable), new(*bench.Lacking)),
		errors.Is(err, context.DeadlineExceeded):
		return app.ExitUnavailable
	}
	return app.ExitBroken
}

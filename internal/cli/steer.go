package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux/starter"
)

func steering(a *app, c *cobra.Command, ask func(ctx context.Context, h *starter.Handle) (string, error)) *cobra.Command {
	return a.onMap(c, func(ctx context.Context, _ *connection, h *starter.Handle) error {
		said, err := ask(ctx, h)
		if err == nil {
			a.console.Say("map %s: %s", h.ID, said)
		}
		return err
	})
}

func pauseCommand(a *app) *cobra.Command {
	return steering(a, &cobra.Command{
		Use:     "pause ID",
		Short:   "Hand out no more chunks; those in flight finish",
		Example: "  gpumux pause embed-3fa92c01d4e5",
	}, func(ctx context.Context, h *starter.Handle) (string, error) {
		return "paused; chunks in flight finish, `gpumux resume " + h.ID + "` goes on", h.Pause(ctx)
	})
}

func resumeCommand(a *app) *cobra.Command {
	return steering(a, &cobra.Command{
		Use:     "resume ID",
		Short:   "End a pause",
		Example: "  gpumux resume embed-3fa92c01d4e5",
	}, func(ctx context.Context, h *starter.Handle) (string, error) { return "resumed", h.Resume(ctx) })
}

func cancelCommand(a *app) *cobra.Command {
	return steering(a, &cobra.Command{
		Use:     "cancel ID",
		Short:   "Stop a map; finished items stay, and starting it again goes on",
		Example: "  gpumux cancel embed-3fa92c01d4e5",
	}, func(ctx context.Context, h *starter.Handle) (string, error) {
		return "cancelling; `gpumux wait " + h.ID + "` tells when it is over, `gpumux results " + h.ID + " --partial` gives the results that it has",
			h.Cancel(ctx)
	})
}

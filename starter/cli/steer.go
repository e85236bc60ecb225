package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter"
)

// steering makes c a command that asks a running map for something.
func (a *app) steering(c *cobra.Command, ask func(ctx context.Context, h *starter.Handle) (string, error)) *cobra.Command {
	return a.onMap(c, func(ctx context.Context, _ *connection, h *starter.Handle) error {
		said, err := ask(ctx, h)
		if err == nil {
			a.console.Say("map %s: %s", h.ID, said)
		}
		return err
	})
}

func (a *app) pauseCommand() *cobra.Command {
	return a.steering(&cobra.Command{
		Use:     "pause ID",
		Short:   "Hand out no more chunks; those in flight finish",
		Example: "  gpumux pause embed-3fa92c01d4e5",
	}, func(ctx context.Context, h *starter.Handle) (string, error) {
		return "paused; chunks in flight finish, `gpumux resume " + h.ID + "` goes on", h.Pause(ctx)
	})
}

func (a *app) resumeCommand() *cobra.Command {
	window := 0
	c := &cobra.Command{
		Use:     "resume ID",
		Short:   "End a pause, and change how many chunks are in flight",
		Example: "  gpumux resume embed-3fa92c01d4e5\n  gpumux resume embed-3fa92c01d4e5 --window 16",
	}
	c.Flags().IntVar(&window, "window", 0, "chunks in flight from now on; 0 lets the map learn it")
	c.PreRunE = func(*cobra.Command, []string) error {
		var m mistakes
		m.input(gpumux.MapInput{Window: window})
		return m.err()
	}
	return a.steering(c, func(ctx context.Context, h *starter.Handle) (string, error) {
		said := "resumed"
		if c.Flags().Changed("window") {
			if err := h.Window(ctx, window); err != nil {
				return "", err
			}
			said += ", window " + strconv.Itoa(window)
			if window == 0 {
				said = "resumed, window learnt"
			}
		}
		return said, h.Resume(ctx)
	})
}

func (a *app) cancelCommand() *cobra.Command {
	return a.steering(&cobra.Command{
		Use:     "cancel ID",
		Short:   "Stop a map; its finished items stay, and starting it again goes on",
		Example: "  gpumux cancel embed-3fa92c01d4e5",
	}, func(ctx context.Context, h *starter.Handle) (string, error) {
		if err := h.Cancel(ctx); err != nil {
			return "", err
		}
		return "cancelling; `gpumux wait " + h.ID + "` tells when it is over, `gpumux results " + h.ID + " --partial` gives the results that it has", nil
	})
}

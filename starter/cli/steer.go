package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/starter/cli/app"
)

func steering(a *app.App, c *cobra.Command, ask func(ctx context.Context, h *starter.Handle) (string, error)) *cobra.Command {
	return a.OnMap(c, func(ctx context.Context, _ *app.Connection, h *starter.Handle) error {
		said, err := ask(ctx, h)
		if err == nil {
			a.Console.Say("map %s: %s", h.ID, said)
		}
		return err
	})
}

func pauseCommand(a *app.App) *cobra.Command {
	return steering(a, &cobra.Command{
		Use:     "pause ID",
		Short:   "Hand out no more chunks; those in flight finish",
		Example: "  gpumux pause embed-3fa92c01d4e5",
	}, func(ctx context.Context, h *starter.Handle) (string, error) {
		return "paused; chunks in flight finish, `gpumux resume " + h.ID + "` goes on", h.Pause(ctx)
	})
}

func resumeCommand(a *app.App) *cobra.Command {
	window := 0
	c := &cobra.Command{
		Use:     "resume ID",
		Short:   "End a pause, and change how many chunks are in flight",
		Example: "  gpumux resume embed-3fa92c01d4e5\n  gpumux resume embed-3fa92c01d4e5 --window 16",
	}
	c.Flags().IntVar(&window, "window", 0, "chunks in flight from now on; 0 lets the map learn it")
	c.PreRunE = func(*cobra.Command, []string) error {
		var m app.Mistakes
		inputMistakes(&m, gpumux.MapInput{Window: window})
		return m.Err()
	}
	return steering(a, c, func(ctx context.Context, h *starter.Handle) (string, error) {
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

func cancelCommand(a *app.App) *cobra.Command {
	all := false
	c := steering(a, &cobra.Command{
		Use:     "cancel ID",
		Short:   "Stop a map, or all; finished items stay, and starting one again goes on",
		Example: "  gpumux cancel embed-3fa92c01d4e5\n  gpumux cancel --all",
	}, func(ctx context.Context, h *starter.Handle) (string, error) {
		if err := h.Cancel(ctx); err != nil {
			return "", err
		}
		return "cancelling; `gpumux wait " + h.ID + "` tells when it is over, `gpumux results " + h.ID + " --partial` gives the results that it has", nil
	})
	c.Flags().BoolVar(&all, "all", false, "every map of the namespace that runs")
	one := c.RunE
	c.Args = func(c *cobra.Command, args []string) error {
		if !all {
			return app.OneID(c, args)
		}
		if len(args) > 0 {
			return errors.New("give an ID or --all, not both")
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if !all {
			return one(c, args)
		}
		conn, err := a.Connect(c.Context())
		if err != nil {
			return err
		}
		defer conn.Close()
		return cancelAll(c.Context(), a, conn)
	}
	return c
}

func cancelAll(ctx context.Context, a *app.App, conn *app.Connection) error {
	maps, err := conn.List(ctx, starter.ListOptions{Limit: math.MaxInt, Running: true})
	if err != nil {
		return err
	}
	var failed []error
	for _, m := range maps {
		h, err := conn.Open(ctx, m.ID)
		if err == nil && h.Running() {
			err = h.Cancel(ctx)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("cancel map %s: %w", m.ID, err))
		}
	}
	a.Console.Say("cancelling %d of %d maps that run", len(maps)-len(failed), len(maps))
	return errors.Join(failed...)
}

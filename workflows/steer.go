package workflows

import (
	"fmt"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/payload"
)

// steer registers the updates pause, resume and window, and the query progress.
func (m *mapping) steer(ctx workflow.Context) error {
	if err := workflow.SetQueryHandlerWithOptions(ctx, gpumux.ProgressQuery, func() (gpumux.Progress, error) {
		return m.progress(workflow.Now(ctx)), nil
	}, workflow.QueryHandlerOptions{Description: "How far the map is: items, failures, chunks in flight, rate. Takes no argument."}); err != nil {
		return err
	}
	set := func(paused bool) func(workflow.Context) error {
		return func(ctx workflow.Context) error {
			m.engine.paused, m.engine.changed, m.changed = paused, true, true
			m.steerSegments(ctx, steering{Paused: paused, Window: m.engine.sizer.Fixed})
			m.show(ctx)
			return nil
		}
	}
	if err := workflow.SetUpdateHandlerWithOptions(ctx, gpumux.PauseUpdate, set(true), workflow.UpdateHandlerOptions{
		Description: "Stops handing out chunks; those in flight finish. Takes no argument.",
	}); err != nil {
		return err
	}
	if err := workflow.SetUpdateHandlerWithOptions(ctx, gpumux.ResumeUpdate, set(false), workflow.UpdateHandlerOptions{
		Description: "Ends a pause. Takes no argument.",
	}); err != nil {
		return err
	}
	return workflow.SetUpdateHandlerWithOptions(ctx, gpumux.WindowUpdate, func(ctx workflow.Context, raw converter.RawValue) error {
		var window width
		_ = payload.Decode(raw, &window) // the validator has read it
		m.engine.sizer.Fixed, m.engine.changed, m.changed = int(window), true, true
		m.steerSegments(ctx, steering{Paused: m.engine.paused, Window: int(window)})
		m.show(ctx)
		return nil
	}, workflow.UpdateHandlerOptions{
		Description: fmt.Sprintf("Sets how many chunks are in flight. Takes a number, 0 (automatic) to %d.", gpumux.MaxWindow),
		Validator: func(raw converter.RawValue) error {
			var window width
			return payload.Decode(raw, &window)
		},
	})
}

// width is the argument of the update "window".
type width int

// Validate says what is wrong with it.
func (w width) Validate() error {
	bad := gpumux.InputError{What: "window"}
	if w < 0 || w > gpumux.MaxWindow {
		bad.Add("input", "%d is outside 0 (automatic) to %d", w, gpumux.MaxWindow)
	}
	return bad.Err()
}

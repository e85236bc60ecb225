package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
)

// steer lets people pause, resume and widen a running map, and ask how far it is.
func (m *mapping) steer(ctx workflow.Context) error {
	if err := workflow.SetQueryHandler(ctx, gpumux.ProgressQuery, func() (gpumux.Progress, error) {
		return m.progress(workflow.Now(ctx)), nil
	}); err != nil {
		return err
	}
	set := func(paused bool) func(workflow.Context) error {
		return func(ctx workflow.Context) error {
			m.e.paused, m.e.changed, m.changed = paused, true, true
			m.tell(ctx, steering{Paused: paused, Window: m.e.sizer.fixedWindow})
			m.show(ctx)
			return nil
		}
	}
	if err := workflow.SetUpdateHandler(ctx, gpumux.PauseUpdate, set(true)); err != nil {
		return err
	}
	if err := workflow.SetUpdateHandler(ctx, gpumux.ResumeUpdate, set(false)); err != nil {
		return err
	}
	return workflow.SetUpdateHandlerWithOptions(ctx, gpumux.WindowUpdate, func(ctx workflow.Context, window int) error {
		m.e.sizer.fixedWindow, m.e.changed = window, true
		m.tell(ctx, steering{Paused: m.e.paused, Window: window})
		m.show(ctx)
		return nil
	}, workflow.UpdateHandlerOptions{Validator: func(window int) error {
		if window < 0 || window > gpumux.MaxWindow {
			return fmt.Errorf("window %d is outside 0 (automatic) to %d", window, gpumux.MaxWindow)
		}
		return nil
	}})
}

package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/text"
)

// findEdition finds the edition of the task's code that the whole map runs with: the one
// that its input names, or that of the first worker of its pool that answers.
func (m *mapping) findEdition(ctx workflow.Context) error {
	if m.in.Edition == "" && m.engine.total > 0 {
		m.phase = gpumux.Running // it waits for a slot, as a chunk would
		m.show(ctx)
		found, err := m.askEdition(ctx, m.in.Task)
		if err != nil {
			return err
		}
		m.in.Edition, m.engine.sizer.Likely, m.engine.contact = found.Edition, found.Slots, found.Contact
	}
	m.engine.in.Edition = m.in.Edition
	return nil
}

// askEdition asks a worker for the edition of a task's code.
func (m *mapping) askEdition(ctx workflow.Context, task string) (found contract.Edition, err error) {
	options := workflow.ActivityOptions{
		StartToCloseTimeout: contract.HeartbeatTimeout, WaitForCancellation: true,
		Summary:     text.Plain("find the edition of " + task),
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: 100 * time.Millisecond, MaximumInterval: contract.HeartbeatTimeout},
		Priority:    temporal.Priority{PriorityKey: m.in.Priority, FairnessKey: m.in.FairnessKey},
	}
	return found, m.engine.runOn(ctx, 0, func(within workflow.Context, queue string) error {
		options.TaskQueue = queue
		return workflow.ExecuteActivity(workflow.WithActivityOptions(within, options), contract.FindEdition,
			contract.EditionInput{Task: task}).Get(ctx, &found)
	})
}

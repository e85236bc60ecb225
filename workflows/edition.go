package workflows

import (
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/text"
)

// findEdition finds the edition of the task's code that the whole map runs with: the one that
// its input names, or that of the first worker of its pool that answers.
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
	m.engine.setEdition(m.in.Edition)
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

// setEdition gives all rungs the edition.
func (e *engine) setEdition(edition string) {
	for _, r := range e.rungs {
		r.edition = edition
	}
}

// editions are those of all rungs.
func (e *engine) editions() (list []string) {
	for _, r := range e.rungs {
		list = append(list, r.edition)
	}
	return list
}

// agrees reports whether what ran on a rung is of the map's edition. If none was known before, that of the first chunk counts. The
// hash behind the plus, which only processes know, may differ between pools.
func (e *engine) agrees(at int, edition string) bool {
	if edition == "" || len(edition) > gpumux.MaxName {
		return edition == ""
	}
	shown, _, _ := strings.Cut(edition, "+")
	r := e.rungs[at]
	if r.edition == "" {
		e.setEdition(shown)
	}
	if r.edition == shown {
		r.edition = edition
	}
	return r.edition == edition
}

// mixed is the error of a map whose items have run with two editions of the code.
func (e *engine) mixed(at int, edition string) error {
	fault := &gpumux.Fault{
		Kind: gpumux.BadInput, Op: "run", Task: e.in.Task, Edition: edition[:min(len(edition), gpumux.MaxName)],
		Message: fmt.Sprintf("items ran with edition %s of the code of task %s, and with %.60s on %s", e.rungs[at].edition, e.in.Task, edition,
			e.in.Rungs()[at]),
		Hint: "let all workers of a pool have the same code, and start a new map with another output",
	}
	return faultError(fault.Error(), fault)
}

package workflows

import (
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// fix finds the edition of the task's code that the whole map runs with: the one that it asks for, or that of the first worker of its
// pool that answers.
func (m *mapping) fix(ctx workflow.Context) error {
	if m.in.Edition == "" && m.e.total > 0 {
		m.phase = gpumux.Running // it waits for a slot, as a chunk would
		m.show(ctx)
		options := workflow.ActivityOptions{
			TaskQueue: m.e.queues[0], StartToCloseTimeout: contract.HeartbeatTimeout, WaitForCancellation: true,
			Summary: "find the edition of " + m.in.Task,
			RetryPolicy: &temporal.RetryPolicy{
				InitialInterval: 100 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: contract.HeartbeatTimeout,
			},
			Priority: temporal.Priority{PriorityKey: m.in.Priority, FairnessKey: m.in.FairnessKey},
		}
		future := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), contract.FindEdition, contract.EditionInput{Task: m.in.Task})
		var found contract.Edition
		if err := future.Get(ctx, &found); err != nil {
			return err
		}
		m.in.Edition, m.e.sizer.likely = found.Edition, found.Slots
	}
	m.e.fix(m.in.Edition)
	return nil
}

// fix gives all rungs the edition.
func (e *engine) fix(edition string) {
	e.editions = make([]string, len(e.queues))
	for rung := range e.editions {
		e.editions[rung] = edition
	}
}

// agrees reports whether what ran on a rung is of the map's edition. Where none was known before, it is that of the first chunk. What
// only processes know of their modules may differ between pools.
func (e *engine) agrees(rung int, edition string) bool {
	if edition == "" || len(edition) > gpumux.MaxName {
		return edition == ""
	}
	shown, _, _ := strings.Cut(edition, "+")
	if e.editions[rung] == "" {
		e.fix(shown)
	}
	if e.editions[rung] == shown {
		e.editions[rung] = edition
	}
	return e.editions[rung] == edition
}

// mixed is the error of a map whose items have run with two editions of the code.
func (e *engine) mixed(rung int, edition string) error {
	fault := &gpumux.Fault{
		Kind: gpumux.BadInput, Op: "run", Task: e.in.Task, Edition: edition[:min(len(edition), gpumux.MaxName)],
		Message: fmt.Sprintf("items ran with edition %s of the code of task %s, and with %.60s on %s", e.editions[rung], e.in.Task, edition,
			e.in.Rungs()[rung]),
		Hint: "let all workers of a pool have the same code, and start a new map with another output",
	}
	return faultError(fault.Error(), fault)
}

package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/sizing"
)

// again puts back the items of a piece that raised, to be tried after a pause. Pauses
// that end at nearly the same time end together, so that many chunks with few such items
// each do not become many pieces.
func (e *engine) again(ctx workflow.Context, piece contract.Piece, items contract.Runs) {
	const steps = 8
	pause := sizing.Pause(time.Duration(e.in.Backoff), piece.Tries)
	step := max(1, pause/steps)
	due := workflow.Now(ctx).Add(pause + step - 1).Truncate(step)
	e.requeue(ctx, contract.Piece{Work: contract.Work{Runs: items}, Rung: piece.Rung, Tries: piece.Tries + 1, Due: due})
}

// due is how long it takes until a piece may be handed out: 0 where one may now, below 0
// where there is none.
func (e *engine) due(now time.Time) time.Duration {
	least := time.Duration(-1)
	for _, piece := range e.todo {
		if wait := max(0, piece.Due.Sub(now)); least < 0 || wait < least {
			least = wait
		}
	}
	return least
}

// waiting is how many items wait to be tried again.
func (e *engine) waiting(now time.Time) (items int64) {
	for _, piece := range e.todo {
		if piece.Due.After(now) {
			items += piece.Len()
		}
	}
	return items
}

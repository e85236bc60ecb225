package activities

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// Pauses before items are tried again that no item is to blame for.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 10 * time.Second
)

// RunDirect runs a chunk's Items in slots without Temporal, and stores nothing. A fault
// means what it means in a map, and its retries are made here. Done takes each result, in
// order and before RunDirect returns. Batch is how many items a slot may have under way
// at once; 0: one. An error, which is a *gpumux.Fault where it is not ctx's cause, leaves
// items without a result.
func (p *Pool) RunDirect(ctx context.Context, chunk contract.Chunk, done func(gpumux.Result)) (batch int64, err error) {
	a := &attempt{Pool: p, ctx: ctx, chunk: chunk, log: &faultLog{Logger: p.Log}, await: freely}
	a.ledger = newLedger(chunk, contract.Whole(int64(len(chunk.Items))).Runs, memo{})
	a.ledger.put = done
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := a.runItems()
		batch = a.ledger.finish().Batch
		var failed *temporal.ApplicationError
		if !errors.As(err, &failed) {
			return batch, err
		}
		if failed.NonRetryable() {
			var fault gpumux.Fault
			if failed.Details(&fault) != nil {
				return batch, err
			}
			return batch, &fault
		}
		wait := pause
		if failed.NextRetryDelay() > 0 {
			wait, pause = failed.NextRetryDelay(), firstPause/2
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return batch, context.Cause(ctx)
		}
	}
}

package activities

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// Direct asks for items outside of any map. Nothing of them is stored.
type Direct struct {
	Task string
	// Mode, Timeout and Attempts override the task's own; zero keeps them.
	Mode     gpumux.Mode
	Timeout  time.Duration
	Attempts int
	Items    []json.RawMessage
	// Arg, Key and WithItem are those of gpumux.MapInput.
	Arg      json.RawMessage
	Key      string
	WithItem bool
	// Done takes each result, in order and before RunDirect returns. Its index is the
	// position in Items.
	Done func(gpumux.Result)
	// Batch is told how many items a slot may have under way at once, before RunDirect
	// returns; 0: one. It may be nil.
	Batch func(int64)
}

// Pauses before items are tried again that no item is to blame for.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 10 * time.Second
)

// RunDirect runs items in slots without Temporal. A fault means what it means in a map's
// chunk, and its retries are made here. An error, which is a *gpumux.Fault where it is
// not ctx's cause, leaves items without a result.
func (p *Pool) RunDirect(ctx context.Context, in Direct) error {
	chunk := contract.Chunk{Task: in.Task, Mode: in.Mode, Timeout: gpumux.Duration(in.Timeout), Attempts: in.Attempts, Items: in.Items,
		Arg: in.Arg, Key: in.Key, WithItem: in.WithItem}
	a := &attempt{Pool: p, ctx: ctx, chunk: chunk, log: &faultLog{Logger: p.Log}}
	a.ledger = newLedger(chunk, contract.Runs{{End: int64(len(in.Items))}}, memo{})
	a.ledger.direct, a.ledger.onlyInline = in.Done, false
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := a.runItems()
		if in.Batch != nil {
			in.Batch(a.ledger.finish().Batch)
		}
		var failed *temporal.ApplicationError
		if !errors.As(err, &failed) {
			return err
		}
		if failed.NonRetryable() {
			var fault gpumux.Fault
			if failed.Details(&fault) != nil {
				return err
			}
			return &fault
		}
		wait := pause
		if failed.NextRetryDelay() > 0 {
			wait, pause = failed.NextRetryDelay(), firstPause/2
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

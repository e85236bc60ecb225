package activities

import (
	"context"
	"errors"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// Pauses before items are tried again that no item is to blame for.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 10 * time.Second
)

// RunDirect runs a chunk's Items in slots without Temporal, and stores nothing. A fault
// means what it means in a map, and its retries are made here. Meet is called before a
// process runs items: it takes batch of them in one call, or runs concurrent ones at the
// same time; 0: one after the other. Done takes each result, before RunDirect returns. An
// error, which is a *gpumux.Fault where it is not ctx's cause, leaves items without a
// result.
func (p *Pool) RunDirect(ctx context.Context, chunk contract.Chunk, meet func(batch, concurrent int), done func(gpumux.Result)) error {
	a := &attempt{Pool: p, ctx: ctx, chunk: chunk, log: &faultLog{Logger: p.Log}}
	a.ledger = newLedger(chunk, contract.Whole(int64(len(chunk.Items))).Runs, memo{})
	a.ledger.put, a.ledger.met = done, meet
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := a.runItems()
		var end *ending
		switch {
		case !errors.As(err, &end):
			return err
		case !end.again:
			return end.fault
		}
		wait := pause
		if end.delay > 0 {
			wait, pause = end.delay, firstPause/2
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

package workers

import (
	"context"

	"github.com/gpumux/gpumux/activities"
	"github.com/gpumux/gpumux/activities/record"
	"github.com/gpumux/gpumux/store"
)

// connect opens the store and the connection to Temporal, where the worker is not alone.
func (w *Worker) connect(ctx context.Context) (err error) {
	if w.o.Alone {
		return nil
	}
	if w.store, err = store.Open(ctx, w.storeURL, w.objects); err != nil {
		return err
	}
	w.recorders = record.New(w.store)
	if w.client = w.o.Client; w.client != nil {
		return nil
	}
	return w.dial(ctx)
}

// Direct asks for items outside of any map.
type Direct = activities.Direct

// RunDirect runs items in a pool's slots, and waits for a slot as long as ctx lasts. See activities.Pool.RunDirect.
func (w *Worker) RunDirect(ctx context.Context, pool string, in Direct) error {
	return w.direct[pool].RunDirect(ctx, in)
}

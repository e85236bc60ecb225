package fleet

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"golang.org/x/sync/errgroup"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// RunningItem is an item that runs in a slot, or the first of a micro-batch that does.
type RunningItem struct {
	Index int64 `json:"index"`
	// Worker is its identity, Slot pool/number.
	Worker string          `json:"worker"`
	Slot   string          `json:"slot"`
	Device string          `json:"device"`
	For    gpumux.Duration `json:"for"`
	// Progress is the beginning of the JSON that the item reported last.
	Progress string `json:"progress,omitempty"`
}

// Running asks workers which items of a map they run. One that does not answer soon is left out.
func (f *Fleet) Running(ctx context.Context, id string, workers []string) []RunningItem {
	const patience = 3 * time.Second
	found := make([][]RunningItem, len(workers))
	var asking errgroup.Group
	asking.SetLimit(askAtOnce)
	for i, worker := range workers {
		asking.Go(func() error {
			offer, err := f.ask(ctx, contract.WorkerQueue(worker), patience)
			for _, p := range offer.Pools {
				for _, seat := range p.Seats {
					if err == nil && seat.Map == id && seat.Item != nil {
						found[i] = append(found[i], RunningItem{*seat.Item, worker, seat.Name, seat.Device, seat.For, seat.Progress})
					}
				}
			}
			return nil
		})
	}
	_ = asking.Wait()
	return slices.SortedFunc(slices.Values(slices.Concat(found...)), func(a, b RunningItem) int { return cmp.Compare(b.For, a.For) })
}

// Printed asks a worker what an item prints there.
func (f *Fleet) Printed(ctx context.Context, worker string, in contract.OutputInput) (out contract.Output, err error) {
	ctx, cancel := context.WithTimeout(ctx, answering)
	defer cancel()
	asked, err := f.Client.ExecuteActivity(ctx, client.StartActivityOptions{
		ID: "gpumux-output-" + rand.Text(), TaskQueue: contract.WorkerQueue(worker), Summary: "a client asks what an item prints",
		ScheduleToCloseTimeout: answering, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
	}, contract.ReadOutput, in)
	if err == nil {
		err = asked.Get(ctx, &out)
	}
	return out, err
}

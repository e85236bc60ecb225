package starter

import (
	"context"

	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"

	"github.com/gpumux/gpumux"
)

// stuckAfter is how often an activity must have failed to count as stuck.
const stuckAfter = 3

// Stuck lists the light activities of a running map, those that read and write the store, that have failed at least three times
// and are tried on and on: each holds the map up. Fault is why the last attempt failed.
func (h *Handle) Stuck(ctx context.Context) ([]Pending, error) {
	r, err := h.starter.describe(ctx, h.ID)
	if err != nil || r == nil {
		return nil, err
	}
	stuck := stuckOf(r.Pending, h.starter.converter())
	for i, child := range r.Children {
		if i >= MaxPending {
			break
		}
		stuck = append(stuck, stuckOf(h.starter.pendingOfChild(ctx, child), h.starter.converter())...)
	}
	return stuck, nil
}

func stuckOf(activities []*workflowpb.PendingActivityInfo, data converter.DataConverter) []Pending {
	var stuck []Pending
	for _, a := range activities {
		p := pendingOf(a, data)
		if p.Activity != gpumux.RunChunk && p.Fault != nil && p.Attempt > stuckAfter {
			stuck = append(stuck, p)
		}
	}
	return stuck
}

package starter

import (
	"context"

	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"

	"github.com/gpumux/gpumux/internal/contract"
)

// stuckAfter is how often an activity must have failed to count as stuck.
const stuckAfter = 3

// Retries is what a running map tries again.
type Retries struct {
	// Chunks is how many chunks in flight are not in their first attempt.
	Chunks int64
	// Stuck are the light activities, those that read and write the store, that have failed at least three times and are tried on and
	// on: each holds the map up. Fault is why the last attempt failed.
	Stuck []Pending
}

// Retries looks at what the map has in flight.
func (h *Handle) Retries(ctx context.Context) (Retries, error) {
	var found Retries
	r, err := h.starter.describe(ctx, h.ID)
	if err != nil || r == nil {
		return found, err
	}
	found.add(r.Pending, h.starter.converter())
	for i, child := range r.Children {
		if i >= MaxPending {
			break
		}
		found.add(h.starter.pendingOfChild(ctx, child), h.starter.converter())
	}
	return found, nil
}

func (r *Retries) add(activities []*workflowpb.PendingActivityInfo, data converter.DataConverter) {
	for _, a := range activities {
		p := pendingOf(a, data)
		switch {
		case p.Activity == contract.RunChunk && p.Attempt > 1:
			r.Chunks++
		case p.Activity != contract.RunChunk && p.Fault != nil && p.Attempt > stuckAfter:
			r.Stuck = append(r.Stuck, p)
		}
	}
}

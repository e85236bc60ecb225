package starter

import (
	"context"
	"iter"

	"github.com/gpumux/gpumux/internal/contract"
)

// Listen yields what an item prints while it runs, about once a second, until ctx ends. There is nothing while the item does not run, on a
// server without standalone activities, and for items of a micro-batch but the first. What the item prints last is in its result alone.
func (h *Handle) Listen(ctx context.Context, item int64) iter.Seq[string] {
	return func(yield func(string) bool) {
		worker, at := "", contract.Output{}
		for {
			if worker == "" {
				worker = h.workerOf(ctx, item)
			}
			if worker != "" {
				now, err := h.starter.Fleet().Printed(ctx, worker, contract.OutputInput{Map: h.ID, Item: item, PID: at.PID, From: at.Next})
				if err == nil && now.PID != 0 {
					at = now
				} else {
					worker = ""
				}
				if err == nil && now.Text != "" && !yield(now.Text) {
					return
				}
			}
			if pause(ctx, agedPoll) != nil {
				return
			}
		}
	}
}

// workerOf is the identity of the worker that runs an item, or "".
func (h *Handle) workerOf(ctx context.Context, item int64) string {
	r, err := h.starter.describe(ctx, h.ID)
	if err != nil || r == nil {
		return ""
	}
	for _, running := range h.starter.Fleet().Running(ctx, h.ID, busy(h.starter.firstPending(ctx, r))) {
		if running.Index == item {
			return running.Worker
		}
	}
	return ""
}

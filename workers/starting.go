package workers

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux/internal/pool"
)

const (
	// longStart is how long a start may take without a word, startAgain how long the next
	// word about the task takes.
	longStart  = 30 * time.Second
	startAgain = 5 * time.Minute
)

// watchStarts says which task has been starting for long, until ctx ends: a model that
// loads looks like a worker that hangs.
func (w *Worker) watchStarts(ctx context.Context) {
	tick := time.Tick(time.Second)
	warned := map[string]time.Time{} // by task
	for {
		select {
		case now := <-tick:
			for _, p := range w.pools {
				p.Each(func(h *pool.Seat, _ string) {
					s := h.Stats().Starting
					if s == nil || now.Sub(s.Began) < longStart || now.Sub(warned[s.Task]) < startAgain {
						return
					}
					warned[s.Task] = now
					w.notices.Warn(w.log, fmt.Sprintf("%s: a process has been starting for %s (importing)", s.Task, now.Sub(s.Began).Round(time.Second)),
						zap.String("advice", "the start ends after 5m; to allow more, set start: in the worker's file"))
				})
			}
		case <-ctx.Done():
			return
		}
	}
}

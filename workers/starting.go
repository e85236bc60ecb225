package workers

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux/internal/pool"
	"github.com/gpumux/gpumux/internal/slot"
)

const (
	// longStart is how long a start may take without a word, startAgain how long the next
	// word about the task takes.
	longStart  = 30 * time.Second
	startAgain = 5 * time.Minute
)

// watchStarts says what has been starting for long, until ctx ends: a model that loads
// looks like a worker that hangs.
func (w *Worker) watchStarts(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	said := map[string]time.Time{}
	for {
		select {
		case now := <-tick.C:
			var starts []slot.Start
			for _, p := range w.pools {
				p.Each(func(h *pool.Seat, _ string) {
					if s := h.Stats().Starting; s != nil {
						starts = append(starts, *s)
					}
				})
			}
			for _, text := range longStarts(starts, now, said) {
				w.notices.Warn(w.log, text, zap.String("advice", "the start ends after 5m; to allow more, set start: in the worker's file"))
			}
		case <-ctx.Done():
			return
		}
	}
}

// longStarts has a line for each task with a start that takes long, once, and again when
// startAgain is over. It notes in said when that was.
func longStarts(starts []slot.Start, now time.Time, said map[string]time.Time) (lines []string) {
	byTask := map[string][]slot.Start{}
	for _, s := range starts {
		byTask[s.Task] = append(byTask[s.Task], s)
	}
	for _, task := range slices.Sorted(maps.Keys(byTask)) {
		all := byTask[task]
		first := slices.MinFunc(all, func(a, b slot.Start) int { return a.Began.Compare(b.Began) })
		age := now.Sub(first.Began)
		if age < longStart || now.Sub(said[task]) < startAgain {
			continue
		}
		said[task] = now
		what := "a process has"
		if len(all) > 1 {
			what = fmt.Sprintf("%d processes have", len(all))
		}
		lines = append(lines, fmt.Sprintf("%s: %s been starting for %s (importing)", cmp.Or(task, "a task"), what, age.Round(time.Second)))
	}
	return lines
}

package workers

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/gpumux/gpumux/internal/fleet"
)

const backlogEvery = 15 * time.Second

// followBacklog keeps what the running maps have to do in the pools of the file among the
// metrics, until ctx ends. While a map is silent no value falls, so that an autoscaler
// takes no worker away because of that.
func (w *Worker) followBacklog(ctx context.Context) {
	f := &fleet.Fleet{Client: w.client, Namespace: w.namespace}
	for had := map[string]fleet.Backlog{}; len(w.config.Backlog) > 0; {
		all, silent, err := f.Backlog(ctx)
		if ctx.Err() == nil && (err != nil || silent != nil) {
			w.log.Warn("the backlog is not known in full; its metrics do not fall", zap.Strings("silent", silent), zap.Error(err))
		}
		for _, pool := range w.config.Backlog {
			if b := all[pool]; err == nil && (silent == nil || b.Items > had[pool].Items) {
				had[pool] = b
				w.metrics.backlog.WithLabelValues(pool).Set(float64(b.Items))
				w.metrics.work.WithLabelValues(pool).Set(b.Seconds)
			}
		}
		select {
		case <-time.After(backlogEvery):
		case <-ctx.Done():
			return
		}
	}
}

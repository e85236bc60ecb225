package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpumux/gpumux"
)

// Backlog is the work left in a pool for the running maps of a namespace.
type Backlog struct {
	Namespace string `json:"namespace"`
	Pool      string `json:"pool"`
	Maps      int    `json:"maps"`
	// Waiting items have not begun, Running ones are in slots: at least one item in each.
	Waiting int64 `json:"waiting"`
	Running int64 `json:"running"`
	// Seconds is their time in one slot. Maps without a finished item are left out.
	Seconds float64 `json:"seconds"`
	// Slots counts those of the Workers that serve the pool now.
	Slots   int `json:"slots"`
	Workers int `json:"workers"`
}

// progressing is how long a map may take to answer; mapsAtOnce are asked at a time.
const progressing, mapsAtOnce = 5 * time.Second, 8

// Unfinished returns the items without a result of all running maps by pool, as Waiting,
// whether anybody serves the pools or not. It leaves out the silent maps.
func (f *Fleet) Unfinished(ctx context.Context) (all map[string]Backlog, silent []string, err error) {
	var mu sync.Mutex // guards the results
	var asking errgroup.Group
	asking.SetLimit(mapsAtOnce)
	all = map[string]Backlog{}
	query := "ExecutionStatus = 'Running' AND WorkflowType = " + strconv.Quote(gpumux.MapWorkflow)
	for info, failed := range f.Workflows(ctx, query) {
		if failed != nil {
			err = fmt.Errorf("list running maps: %w", failed)
			break
		}
		id := info.GetExecution().GetWorkflowId()
		asking.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, progressing)
			defer cancel()
			p, err := f.Progress(ctx, id)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				silent = append(silent, id)
			}
			count(all, p)
			return nil
		})
	}
	_ = asking.Wait() // who is silent is named
	return all, silent, cmp.Or(err, context.Cause(ctx))
}

// Progress asks a map once.
func (f *Fleet) Progress(ctx context.Context, id string) (p gpumux.Progress, err error) {
	answer, err := f.Client.QueryWorkflow(ctx, id, "", gpumux.ProgressQuery)
	if err == nil {
		err = answer.Get(&p)
	}
	return p, err
}

func count(all map[string]Backlog, p gpumux.Progress) {
	for _, rung := range p.Backlog {
		b := all[rung.Rung]
		b.Maps++
		b.Waiting += rung.Items
		b.Seconds += float64(rung.Items) * time.Duration(p.ItemTime).Seconds()
		all[rung.Rung] = b
	}
}

// Backlog adds to Unfinished the running items and the workers, for these pools, or for
// all that maps ask for or workers serve.
func (f *Fleet) Backlog(ctx context.Context, pools []string) (list []Backlog, silent []string, err error) {
	all, silent, err := f.Unfinished(ctx)
	if err != nil {
		return nil, nil, err
	}
	workers, err := f.Workers(ctx)
	if err != nil && !errors.As(err, new(*NoWorkerError)) {
		return nil, nil, err
	}
	for _, offer := range offersOf(workers) {
		for _, p := range offer.Pools {
			b := all[p.Name]
			b.Workers, b.Slots = b.Workers+1, b.Slots+p.Slots
			runs := min(int64(p.Busy), b.Waiting)
			b.Waiting, b.Running = b.Waiting-runs, b.Running+runs
			all[p.Name] = b
		}
	}
	if len(pools) == 0 {
		pools = slices.Sorted(maps.Keys(all))
	}
	for _, name := range pools {
		b := all[name]
		b.Namespace, b.Pool = f.namespace(), name
		list = append(list, b)
	}
	return list, silent, nil
}

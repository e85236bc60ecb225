package fleet

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpumux/gpumux"
)

// Backlog is the work left in a pool for the running maps of a namespace.
type Backlog struct {
	// Items have no result yet.
	Items int64
	// Seconds is their time in one slot. Maps without a finished item are left out.
	Seconds float64
}

// progressing is how long a map may take to answer; mapsAtOnce are asked at a time.
const progressing, mapsAtOnce = 5 * time.Second, 8

// Backlog returns what the running maps have left by pool, whether anybody serves the
// pools or not. It leaves out the silent maps.
func (f *Fleet) Backlog(ctx context.Context) (all map[string]Backlog, silent []string, err error) {
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
		b.Items += rung.Items
		b.Seconds += float64(rung.Items) * time.Duration(p.ItemTime).Seconds()
		all[rung.Rung] = b
	}
}

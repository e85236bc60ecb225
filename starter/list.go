package starter

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpumux/gpumux"
)

// askAtOnce is how many maps are asked at a time.
const askAtOnce = 8

// ListOptions narrow a list of maps.
type ListOptions struct {
	// Limit is the most maps to return. Default 20.
	Limit int
	// Running leaves out those that are over.
	Running bool
	// Counts asks each map how far it is, at a call per map.
	Counts bool
}

// Listed is the newest run of one map.
type Listed struct {
	ID      string    `json:"id"`
	RunID   string    `json:"runId"`
	Task    string    `json:"task"`
	Status  Status    `json:"status"`
	Input   string    `json:"input,omitempty"`
	Started time.Time `json:"started"`
	// Closed is zero while the map runs.
	Closed time.Time `json:"closed,omitzero"`
	// Items, Succeeded and Failed are -1 when they are not known.
	Items     int64 `json:"items"`
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
	// Paused is a running map that hands out nothing, as far as it could be asked.
	Paused bool `json:"paused,omitempty"`
	// Recent are the newest failures of a running map that could be asked, at most five.
	Recent []gpumux.Result `json:"recent,omitempty"`
}

// List returns maps, the newest first, one entry per ID.
func (s *Starter) List(ctx context.Context, o ListOptions) ([]Listed, error) {
	limit := cmp.Or(max(o.Limit, 0), 20)
	filter := ""
	if o.Running {
		filter = "ExecutionStatus = 'Running'"
	}
	var maps []Listed
	var runs []*run
	for r, err := range s.newestRuns(ctx, filter) {
		if err != nil {
			return nil, err
		}
		runs, maps = append(runs, r), append(maps, listed(r))
		if len(maps) == limit {
			break
		}
	}
	if o.Counts {
		s.fillCounts(ctx, maps, runs)
	}
	return maps, nil
}

// newestRuns yields the newest run of every map, the newest first.
func (s *Starter) newestRuns(ctx context.Context, filter string) iter.Seq2[*run, error] {
	return func(yield func(*run, error) bool) {
		seen := map[string]bool{}
		query := "WorkflowType = " + strconv.Quote(gpumux.MapWorkflow) + " AND " + cmp.Or(filter, "ExecutionStatus != 'ContinuedAsNew'")
		for info, err := range s.Fleet().Workflows(ctx, query) {
			if err != nil {
				yield(nil, fmt.Errorf("list maps: %w", err))
				return
			}
			r := s.runOf(info)
			if !seen[r.ID] && !yield(r, nil) {
				return
			}
			seen[r.ID] = true
		}
	}
}

func listed(r *run) Listed {
	l := Listed{ID: r.ID, RunID: r.RunID, Task: r.Memo.Task, Status: r.Status, Input: r.Memo.Input,
		Started: r.Started, Closed: r.Closed, Items: r.Memo.Items, Succeeded: -1, Failed: -1}
	if r.Memo.Fingerprint == "" {
		l.Items = -1
	}
	return l
}

// fillCounts reads summaries of completed maps and asks running ones.
func (s *Starter) fillCounts(ctx context.Context, maps []Listed, runs []*run) {
	rung, err := s.Fleet().Rung(ctx, gpumux.Queue)
	canAsk := err == nil && rung.Served()
	var asking errgroup.Group
	asking.SetLimit(askAtOnce)
	for i := range maps {
		asking.Go(func() error {
			s.handle(runs[i], Found).fillCount(ctx, &maps[i], canAsk)
			return nil
		})
	}
	_ = asking.Wait() // what cannot be asked stays unknown
}

func (h *Handle) fillCount(ctx context.Context, l *Listed, canAsk bool) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if l.Status == Completed {
		if sum, err := h.Wait(ctx); err == nil {
			l.Task, l.Items, l.Succeeded, l.Failed = sum.Task, sum.Items, sum.Succeeded, sum.Failed
		}
	} else if l.Status == Running && canAsk {
		if p, err := h.Progress(ctx); err == nil {
			l.Task, l.Items, l.Succeeded, l.Failed, l.Paused, l.Recent = p.Task, p.Items, p.Succeeded, p.Failed, p.Paused, p.Recent
		}
	}
}

package starter

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"go.temporal.io/api/workflowservice/v1"

	"github.com/gpumux/gpumux"
)

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
	// Items is -1 when it is not known yet. Succeeded and Failed are -1 when nobody could tell.
	Items     int64 `json:"items"`
	Succeeded int64 `json:"succeeded"`
	Failed    int64 `json:"failed"`
}

// List returns maps, the newest first, one entry per ID.
func (s *Starter) List(ctx context.Context, o ListOptions) ([]Listed, error) {
	limit := o.Limit
	if limit <= 0 {
		limit = 20
	}
	query := "WorkflowType = " + strconv.Quote(gpumux.MapWorkflow) + " AND ExecutionStatus != 'ContinuedAsNew'"
	if o.Running {
		query = "WorkflowType = " + strconv.Quote(gpumux.MapWorkflow) + " AND ExecutionStatus = 'Running'"
	}
	var maps []Listed
	var runs []*run
	seen := map[string]bool{}
	var page []byte
	for {
		answer, err := s.Client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Namespace: s.namespace(), PageSize: int32(min(limit*2, 1000)), Query: query, NextPageToken: page})
		if err != nil {
			return nil, fmt.Errorf("list maps: %w", err)
		}
		for _, info := range answer.GetExecutions() {
			r := s.runOf(info)
			if seen[r.ID] {
				continue
			}
			seen[r.ID] = true
			runs = append(runs, r)
			maps = append(maps, listed(r))
			if len(maps) == limit {
				break
			}
		}
		page = answer.GetNextPageToken()
		if len(maps) == limit || len(page) == 0 {
			break
		}
	}
	if o.Counts {
		s.count(ctx, maps, runs)
	}
	return maps, nil
}

func listed(r *run) Listed {
	l := Listed{ID: r.ID, RunID: r.RunID, Task: r.Memo.Task, Status: r.Status, Input: r.Memo.Input,
		Started: r.Started, Closed: r.Closed, Items: r.Memo.Items, Succeeded: -1, Failed: -1}
	if r.Memo.Fingerprint == "" {
		l.Items = -1
	}
	return l
}

// count fills in how far each map is: the completed ones have a summary, the running ones are asked.
func (s *Starter) count(ctx context.Context, maps []Listed, runs []*run) {
	rung, err := s.served(ctx, gpumux.Queue)
	canAsk := err == nil && rung.Served()
	var work sync.WaitGroup
	room := make(chan struct{}, 8)
	for i := range maps {
		l, h := &maps[i], s.handle(runs[i], Found)
		if l.Status != Completed && (l.Status != Running || !canAsk) {
			continue
		}
		room <- struct{}{}
		work.Go(func() {
			defer func() { <-room }()
			ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			if l.Status == Completed {
				if sum, err := h.Wait(ctx); err == nil {
					l.Task, l.Items, l.Succeeded, l.Failed = sum.Task, sum.Items, sum.Succeeded, sum.Failed
				}
			} else if p, err := h.Progress(ctx); err == nil {
				l.Task, l.Items, l.Succeeded, l.Failed = p.Task, p.Items, p.Succeeded, p.Failed
			}
		})
	}
	work.Wait()
}

package starter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/text"
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

// MapInfo is the newest run of one map.
type MapInfo struct {
	ID     string `json:"id"`
	RunID  string `json:"runId"`
	Task   string `json:"task"`
	Status Status `json:"status"`
	// Queue is the task queue that the map was started on, where it is not that of maps:
	// no worker begins the map.
	Queue   string    `json:"queue,omitempty"`
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
	// Stages are those of a map that has some, as far as it could be asked.
	Stages []gpumux.StageProgress `json:"stages,omitempty"`
}

// List returns maps, the newest first, one entry per ID.
func (s *Starter) List(ctx context.Context, o ListOptions) ([]MapInfo, error) {
	limit := cmp.Or(max(o.Limit, 0), 20)
	filter := text.When(o.Running, "ExecutionStatus = 'Running'")
	var runs []*run
	for r, err := range s.registry().newestRuns(ctx, filter) {
		if err != nil {
			return nil, err
		}
		if runs = append(runs, r); len(runs) == limit {
			break
		}
	}
	if o.Counts {
		s.fillCounts(ctx, runs)
	}
	maps := []MapInfo{}
	for _, r := range runs {
		maps = append(maps, r.MapInfo)
	}
	return maps, nil
}

const askAtOnce = 8

// fillCounts reads summaries of completed maps and asks a worker about the others.
func (s *Starter) fillCounts(ctx context.Context, runs []*run) {
	rung, err := s.fleet().Rung(ctx, gpumux.Queue)
	canAsk := err == nil && rung.Served()
	var asking errgroup.Group
	asking.SetLimit(askAtOnce)
	for _, r := range runs {
		asking.Go(func() error { s.handle(r, EntryFound).fillCount(ctx, canAsk); return nil })
	}
	_ = asking.Wait() // what cannot be asked stays unknown
}

func (h *Handle) fillCount(ctx context.Context, canAsk bool) {
	l := &h.run.MapInfo
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if l.Status == StatusCompleted {
		if sum, err := h.Wait(ctx); err == nil {
			l.Task, l.Items, l.Succeeded, l.Failed, l.Stages = sum.Task, sum.Items, sum.Succeeded, sum.Failed, sum.Stages
		}
	} else if canAsk { // a worker knows how far one was that has ended, too
		p, err := h.Progress(ctx)
		if err != nil {
			return
		}
		l.Task, l.Items, l.Succeeded, l.Failed, l.Stages = p.Task, p.Items, p.Succeeded, p.Failed, p.Stages
		if l.Status == StatusRunning {
			l.Paused, l.Recent = p.Paused, p.Recent
		}
	}
}

// Detail describes one map.
type Detail struct {
	MapInfo
	// Output and Store say where the results lie, or will.
	Output string `json:"output,omitempty"`
	Store  string `json:"store,omitempty"`
	// Progress is of a running map, Summary of a completed one, Fault of one that failed.
	Progress *gpumux.Progress `json:"progress,omitempty"`
	Summary  *gpumux.Summary  `json:"summary,omitempty"`
	Fault    *gpumux.Fault    `json:"fault,omitempty"`
	// Pending are at most MaxPending chunks in flight.
	Pending []Pending `json:"pending,omitempty"`
	// Running are the items that run, the longest first.
	Running []gpumux.RunningItem `json:"running,omitempty"`
	// Rungs says who serves the map's queues; empty for a map that is over.
	Rungs []gpumux.Rung `json:"rungs,omitempty"`
	// Sick says why no device may take the map's work, where no worker has a healthy one.
	Sick []string `json:"sick,omitempty"`
	// Notices of the workers say what changes what the map gets.
	Notices []string `json:"notices,omitempty"`
}

// MaxPending is the most chunks that a Detail holds.
const MaxPending = 50

// Pending is a chunk in flight.
type Pending struct {
	// Activity is its type, ID its number in the workflow.
	Activity string `json:"activity"`
	ID       string `json:"id"`
	// State is "scheduled", "started", "paused" or "cancel requested".
	State   string        `json:"state"`
	Attempt int           `json:"attempt"`
	Worker  string        `json:"worker,omitempty"`
	Next    time.Time     `json:"next,omitzero"`
	Fault   *gpumux.Fault `json:"fault,omitempty"`
	// Waiting says why it does not move, such as a store that is full or away.
	Waiting string `json:"waiting,omitempty"`
	// Finished counts its items that have been through the map.
	Finished int64 `json:"finished,omitempty"`
}

// Show describes the newest run of a map, as far as can be found out.
func (s *Starter) Show(ctx context.Context, id string) (*Detail, error) {
	h, err := s.Open(ctx, id)
	if err != nil {
		return nil, err
	}
	d := &Detail{MapInfo: h.run.MapInfo, Output: h.Output, Store: h.run.Memo.Store}
	if h.Running() {
		return d, s.showRunning(ctx, h, d)
	}
	summary, err := h.Wait(ctx)
	var ended *EndedError
	switch {
	case err == nil:
		d.Summary, d.Items, d.Task = &summary, summary.Items, summary.Task
		d.Succeeded, d.Failed, d.Stages = summary.Succeeded, summary.Failed, summary.Stages
		if summary.Output != "" {
			d.Output = summary.Output
		}
	case !errors.As(err, &ended):
		return nil, fmt.Errorf("show map %s: %w", id, err)
	case ended.Status == StatusFailed:
		d.Fault = &ended.Fault
	}
	return d, nil
}

func (s *Starter) showRunning(ctx context.Context, h *Handle, d *Detail) error {
	in, err := s.registry().input(ctx, h.run)
	if err == nil {
		d.Task = in.Name()
		if d.Rungs, err = s.fleet().Serving(ctx, in.Pools()); err != nil {
			return err
		}
	}
	if len(d.Rungs) == 0 || d.Rungs[0].Served() {
		asking, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		if p, err := h.Progress(asking); err == nil {
			d.Progress, d.Items, d.Succeeded, d.Failed, d.Stages = &p, p.Items, p.Succeeded, p.Failed, p.Stages
			p.WaitingFor = fleet.WaitingFor(p.WaitingFor, in, d.Rungs[min(1, len(d.Rungs)):])
		}
	}
	d.Pending = s.registry().firstPending(ctx, h.run)
	workers := busy(d.Pending)
	offers := s.fleet().Offers(ctx, workers)
	if len(workers) == 0 && len(d.Pending) > 0 {
		offers = s.fleet().AllOffers(ctx)
		d.Sick = fleet.Sick(offers, in)
	}
	d.Running = fleet.Running(offers, d.ID)
	for _, offer := range offers {
		for _, text := range offer.Notices {
			d.Notices = append(d.Notices, offer.Host+": "+text)
		}
	}
	return nil
}

func busy(pending []Pending) (workers []string) {
	for _, p := range pending {
		if p.Activity == contract.RunChunk && p.State == "started" && p.Worker != "" && !slices.Contains(workers, p.Worker) {
			workers = append(workers, p.Worker)
		}
	}
	return workers
}

const stuckAfter = 3

// Retries is the work that a running map tries again.
type Retries struct {
	// Stuck are activities on the store that have failed at least three times and hold the
	// map up. Fault is why the last attempt failed.
	Stuck []Pending
	// Idle: chunks wait, and none has begun. Workers have begun some.
	Idle    bool
	Workers []string
	// Finished counts the items of the chunks in flight that have been through the map.
	Finished int64
}

// Retries looks at what the map and so many of its segments have in flight.
func (h *Handle) Retries(ctx context.Context, segments int) (Retries, error) {
	found, all, waiting := Retries{}, []Pending{}, false
	maps := h.starter.registry()
	last, err := maps.describe(ctx, h.ID)
	if err != nil || last == nil {
		return found, err
	}
	last.Children = last.Children[:min(segments, len(last.Children))]
	for p := range maps.pending(ctx, last) {
		chunk := p.Activity == contract.RunChunk
		all, waiting = append(all, p), waiting || chunk
		found.Finished += p.Finished
		if !chunk && p.Fault != nil && p.Attempt > stuckAfter {
			found.Stuck = append(found.Stuck, p)
		}
	}
	found.Workers = busy(all)
	found.Idle = waiting && len(found.Workers) == 0
	return found, nil
}

// Sick says why no device may take the map's work, where no worker has a healthy one.
func (h *Handle) Sick(ctx context.Context) ([]string, error) {
	in, err := h.Input(ctx)
	if err != nil {
		return nil, err
	}
	return fleet.Sick(h.starter.fleet().AllOffers(ctx), in), nil
}

package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// left is how many items have no result yet by rung, those in flight included.
func (l *ladder) left(todo []contract.Piece) []int64 {
	items := make([]int64, len(l.rungs))
	for at, r := range l.rungs {
		for _, p := range r.placed {
			items[at] += p.items
		}
	}
	for _, piece := range todo {
		items[min(piece.Rung, len(items)-1)] += piece.Len()
	}
	return items
}

// stages are how far the stages are, segments as far as they have told.
func (m *mapping) stages(now time.Time) (all []stageStatus) {
	for at, s := range m.engine.stages {
		status := s.status(now)
		for _, id := range sortedKeys(m.segments.open) {
			status.add(m.segments.open[id].last.Stages[at])
		}
		all = append(all, status)
	}
	return all
}

// failed is how many items have failed, those of segments as far as they have told.
func (m *mapping) failed() int64 {
	failed := m.engine.failed()
	for _, id := range sortedKeys(m.segments.open) {
		for _, stage := range m.segments.open[id].last.Stages {
			failed += stage.Failed
		}
	}
	return failed
}

func (m *mapping) progress(now time.Time) gpumux.Progress {
	e := m.engine
	p := gpumux.Progress{
		Task: m.in.Name(), Phase: m.phase, Items: e.total, Paused: e.paused, Started: m.started, Output: m.in.Output, Lost: m.lost,
		Chunk: int(e.last().sizer.Largest), ItemTime: gpumux.Duration(e.last().sizer.PerItem),
	}
	var peaks gpumux.Peaks
	var use gpumux.GPUUse
	var counts contract.Counts
	left := map[string]int64{}
	asking := false
	for at, t := range m.stages(now) {
		s := e.stages[at]
		counts.Add(contract.Counts{Failed: t.Failed, Faults: t.Faults})
		p.Succeeded = t.Succeeded
		p.InFlight, p.Window, p.Chunks, p.Waiting = p.InFlight+t.InFlight, p.Window+s.sizer.Whole(), p.Chunks+t.Chunks, p.Waiting+t.Raised
		peaks.Merge(s.tally.peaks.Known())
		use.Add(s.tally.use.Known())
		for rung, n := range t.Left {
			left[s.ladder.rungs[rung].name] += n
		}
		p.PassedOver = withPools(p.PassedOver, t.PassedOver)
		asking = asking || s.asking
		if len(e.stages) > 1 {
			p.Stages = append(p.Stages, s.progress(t))
		}
	}
	p.Failed, p.Faults, p.Peak, p.GPU = counts.Failed, counts.Faults, peaks.Known(), use.Known()
	for _, pool := range m.in.Pools() {
		if left[pool] > 0 {
			p.Backlog = append(p.Backlog, gpumux.RungBacklog{Rung: pool, Items: left[pool]})
		}
	}
	recent := e.failures
	for _, id := range sortedKeys(m.segments.open) {
		recent.add(m.segments.open[id].last.Recent)
	}
	p.Recent = recent.recent
	p.WaitingFor = contract.WaitingFor(p, m.in.Pools(), asking, len(m.segments.open) > 0)
	if elapsed := now.Sub(m.started).Seconds(); elapsed > 0 {
		p.Rate = float64(p.Succeeded+p.Failed) / elapsed
	}
	return p
}

func (m *mapping) done() int64 {
	p := m.progress(m.started)
	return p.Succeeded + p.Failed
}

// show sets the Markdown that the Web UI shows as the workflow's current details.
func (m *mapping) show(ctx workflow.Context) {
	p := m.progress(workflow.Now(ctx))
	workflow.SetCurrentDetails(ctx, contract.Details(p, m.in.Pools()))
}

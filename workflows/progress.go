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

// backlog counts the work left, that of segments as far as they have told.
func (m *mapping) backlog() (all []gpumux.RungBacklog) {
	l := m.engine.ladder
	items := l.left(m.engine.todo)
	for _, id := range sortedKeys(m.segments.open) {
		for at, n := range m.segments.open[id].last.Left {
			items[min(at, len(items)-1)] += n
		}
	}
	for at, n := range items {
		if n > 0 {
			all = append(all, gpumux.RungBacklog{Rung: l.rungs[at].name, Items: n})
		}
	}
	return all
}

// failed is how many items have failed, with those of segments under way as far as they
// have told.
func (m *mapping) failed() int64 {
	failed := m.engine.tally.counts.Failed
	for _, id := range sortedKeys(m.segments.open) {
		failed += m.segments.open[id].last.Failed
	}
	return failed
}

func (m *mapping) progress(now time.Time) gpumux.Progress {
	p := gpumux.Progress{
		Task: m.in.Task, Phase: m.phase, Items: m.engine.total, Succeeded: m.engine.tally.counts.Succeeded, Failed: m.engine.tally.counts.Failed,
		Faults: m.engine.tally.counts.Faults, InFlight: m.engine.inFlight, Window: m.engine.sizer.Whole(), Chunk: int(m.engine.sizer.Largest),
		Chunks: m.engine.tally.chunks, Paused: m.engine.paused, Started: m.started, Recent: m.engine.tally.recent, Output: m.in.Output,
		Peak: m.engine.tally.peaks.Known(), Waiting: m.engine.todo.Waiting(now), Lost: m.lost, PassedOver: m.engine.ladder.passedOver(false),
	}
	p.Backlog, p.ItemTime = m.backlog(), gpumux.Duration(m.engine.sizer.PerItem)
	m.segments.addTo(&p)
	p.WaitingFor = contract.WaitingFor(p, m.in.Rungs(), m.engine.asking, len(m.segments.open) > 0)
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
	workflow.SetCurrentDetails(ctx, contract.Details(p, m.in.Rungs()))
}

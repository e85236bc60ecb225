package workflows

import (
	"fmt"
	"strings"

	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/text"
)

var searchFailed = temporal.NewSearchAttributeKeyInt64(names.SearchFailed)

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

// backlog is what is left with that of the segments, as far as they have told.
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

func details(p gpumux.Progress, ladder []string) string {
	var b strings.Builder
	phase := string(p.Phase)
	if p.Paused {
		phase = "paused"
	}
	done := p.Succeeded + p.Failed
	percent := 100.0
	if p.Items > 0 {
		percent = 100 * float64(done) / float64(p.Items)
	}
	b.WriteString(fmt.Sprintf("**%s** over %d items on %s: %s\n\n", text.Plain(p.Task), p.Items,
		text.Plain(strings.Join(ladder, ", then ")), phase))
	b.WriteString("| finished | failed | in flight | items/s |\n|---|---|---|---|\n")
	b.WriteString(fmt.Sprintf("| %d (%.1f %%) | %d | %d chunks | %.1f |\n", done, percent, p.Failed, p.InFlight, p.Rate))
	if p.Waiting > 0 {
		b.WriteString(fmt.Sprintf("\n%d items raised and wait to be tried again\n", p.Waiting))
	}
	if p.Lost != "" {
		b.WriteString("\nItems run again: " + p.Lost + "\n")
	}
	for _, pool := range p.PassedOver {
		b.WriteString("\nPassed over, since no worker has a healthy device for it: " + text.Plain(pool) + "\n")
	}
	if p.Peak != nil {
		b.WriteString("\nPeak memory per item: " + p.Peak.String() + "\n")
	}
	for _, kind := range sortedKeys(p.Faults) {
		b.WriteString(fmt.Sprintf("\n- %d × %s", p.Faults[kind], text.Plain(string(kind))))
	}
	for _, r := range p.Recent {
		if r.Fault != nil {
			b.WriteString(fmt.Sprintf("\n- item %d: %s", r.Index, text.Plain(r.Fault.Error())))
		}
	}
	return b.String()
}

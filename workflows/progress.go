package workflows

import (
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/names"
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

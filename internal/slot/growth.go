package slot

import (
	"fmt"

	"github.com/gpumux/gpumux"
)

const (
	// fullShare is the share of its budget at which a process is replaced, if it has grown
	// by grownBy since its first item: a new one has room for more then.
	fullShare, grownBy = 0.9, 0.1
	// nearFullShare is the share from which it gets nothing ahead.
	nearFullShare = 0.75
)

// growth decides when a process is replaced for its memory. All but the budget is zero
// where nobody tells what it holds.
type growth struct {
	// budget is in bytes; 0: the process is never replaced.
	budget int64
	// first is what it needed after the first item, swing the height of recent peaks above
	// the need between items, cleared a need amid items that was less between them.
	first, swing, cleared int64
}

// over reports whether the next item may pass the budget although a new process would
// have room for it.
func (g *growth) over(needed int64) bool {
	return g.first > 0 && g.part(needed+g.swing) > fullShare && g.part(needed-g.first) >= grownBy
}

func (g *growth) part(bytes int64) float64 { return float64(bytes) / float64(g.budget) }

// observe books what the process needs, and the peak of its last items; 0: unknown.
func (g *growth) observe(needed, peak int64) {
	if g.first == 0 {
		g.first = needed
	}
	if peak > 0 {
		g.swing += (max(0, peak-needed) - g.swing) / 4
	}
}

// grown reports whether the process gets no more items for now, since it may have grown
// too much. Between two items that is measured; then it is replaced, or goes on.
func (a *account) grown(between bool) bool {
	g := &a.growth
	if g.budget == 0 || a.why != "" {
		return false
	}
	holding, _ := a.memory.Lately()
	if needed := holding.Needed(); needed <= g.cleared || !g.over(needed) {
		return false
	} else if !between {
		return true
	} else if now := a.memory.Now().Needed(); g.over(now) {
		a.replace(forFull, fmt.Sprintf("%s of %s are needed between items, %s more than after the first one", gpumux.Size(now),
			gpumux.Size(g.budget), gpumux.Size(now-g.first)))
	} else {
		g.cleared = needed
	}
	return false
}

// measured books items that have ended, the highest peak of which was so many bytes; 0:
// unknown.
func (a *account) measured(first bool, peak int64) {
	if a.growth.budget == 0 || a.limit == 1 {
		return
	}
	holding, fresh := a.memory.Lately()
	if first {
		// A reading from within the first item would make all of it growth.
		holding, fresh = a.memory.Now(), true
	}
	if fresh && holding.Held > 0 {
		a.growth.observe(holding.Needed(), peak)
	}
}

func (a *account) near() bool {
	if a.growth.budget == 0 {
		return false
	}
	holding, _ := a.memory.Lately()
	return a.growth.part(holding.Needed()) >= nearFullShare
}

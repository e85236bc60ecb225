package activities

import "github.com/gpumux/gpumux"

// peak adds the memory that an item held at its peak, and its slot's budget, in bytes.
func (l *ledger) peak(held, budget int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.peaks.Add(held)
	l.peaks.Budget = max(l.peaks.Budget, gpumux.Size(budget))
}

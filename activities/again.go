package activities

import (
	"github.com/gpumux/gpumux"
)

// attempts is how often the slot tries an item that raises, at once. With a pause between tries each is a call of its own.
func (a *attempt) attempts() int {
	if a.chunk.Backoff {
		return 1
	}
	return a.chunk.Attempts
}

// again hands an item that raised back, to be tried after a pause, and reports whether it did.
func (a *attempt) again(r gpumux.Result) bool {
	if r.Fault == nil || !a.chunk.Backoff {
		return false
	}
	if r.Fault.Attempts += a.chunk.Tries; r.Fault.Attempts >= a.chunk.Attempts {
		return false
	}
	a.log.Info("item raised; it is tried again after a pause", a.logFields(r.Fault, r.Index)...)
	a.ledger.again(r.Index)
	return true
}

// again takes an item out of the chunk that is to be tried after a pause.
func (l *ledger) again(index int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := l.at(index); ok {
		l.done[at] = true
		l.memo.Again.Add(index)
		l.result.Ran++
		l.memo.Spared, l.memo.Avoid = 0, nil
		delete(l.memo.Suspects, index)
	}
}

// failedEnough reports whether more items of the chunk have failed than may.
func (a *attempt) failedEnough() bool {
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	failed := a.ledger.result.Failed
	return a.chunk.FailFast && failed > 0 || a.chunk.MayFail != nil && failed > *a.chunk.MayFail
}

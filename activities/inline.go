package activities

import (
	"fmt"
	"slices"

	"github.com/gpumux/gpumux"
)

const (
	// inlineResults is the most bytes of results that a chunk returns through the history.
	inlineResults = 256 << 10
	// largestResult is the most bytes of one result that can travel inline at all.
	largestResult = 1 << 20
)

// fit shortens a call whose results can only travel inline, so that no more items run than results fit.
func (a *attempt) fit(spans gpumux.Runs) gpumux.Runs {
	if !a.ledger.onlyInline() {
		return spans
	}
	a.ledger.mu.Lock()
	defer a.ledger.mu.Unlock()
	room, items := int64(inlineResults-a.ledger.bytes), int64(len(a.ledger.memo.Results))
	allowed := int64(1)
	if items > 0 {
		allowed = max(1, min(items*8, room*items/int64(2*a.ledger.bytes)))
	}
	short := slices.Clone(spans)
	for i, span := range short {
		if span.Len() >= allowed {
			short[i].End = span.Start + allowed
			return short[:i+1]
		}
		allowed -= span.Len()
	}
	return short
}

// limitSize replaces a result that is too large for the way it has to travel.
func (a *attempt) limitSize(result gpumux.Result) gpumux.Result {
	if n := len(result.Value); a.ledger.onlyInline() && n > largestResult {
		result.Value = nil
		result.Fault = &gpumux.Fault{
			Kind: gpumux.TaskError, Op: "run", Task: a.chunk.Task,
			Message: fmt.Sprintf("the result has %s, more than the %s that travel inline", gpumux.Size(n), gpumux.Size(largestResult)),
			Hint:    "run the map over a source in the store (gpumux.Map, MapSource), or write large results to a file and return its path",
		}
	}
	a.ledger.mu.Lock()
	if a.ledger.onlyInline() && a.ledger.bytes+result.Weight() > inlineResults {
		a.full = true
	}
	a.ledger.mu.Unlock()
	return result
}

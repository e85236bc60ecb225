package workflows

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpumux/gpumux"
)

// allowFailures sets at how many failures the map ends: those that are there already do
// not count.
func (e *engine) allowFailures() {
	if most := e.in.MaxFailures.Of(e.total); most >= 0 {
		e.most = e.counts.Failed + most
	}
}

// mayFail is how many more items may fail when so many have; nil where any number may.
func (e *engine) mayFail(failed int64) *int64 {
	if e.most < 0 {
		return nil
	}
	left := max(0, e.most-failed)
	return &left
}

// failedEnough reports whether more items have failed than may.
func (e *engine) failedEnough() bool { return e.most >= 0 && e.counts.Failed > e.most }

// failed is how many items have failed, with those of segments under way as far as they
// have told.
func (m *mapping) failed() int64 {
	failed := m.engine.counts.Failed
	for _, id := range sortedKeys(m.segmentsOpen) {
		failed += m.segmentsOpen[id].last.Failed
	}
	return failed
}

// failedEnough is the engine's, over all segments.
func (m *mapping) failedEnough() bool { return m.engine.most >= 0 && m.failed() > m.engine.most }

// tooManyFailures is the error of a map of which so many items have failed.
func (e *engine) tooManyFailures(failed int64) error {
	allowed := e.in.MaxFailures.Of(e.total)
	failed -= e.most - allowed // those of earlier runs
	message := fmt.Sprintf("%d of %d items failed, more than the %d that may (%s)", failed, e.total, allowed, e.in.MaxFailures)
	kinds := sortedKeys(e.counts.Faults)
	slices.SortStableFunc(kinds, func(a, b gpumux.Kind) int { return cmp.Compare(e.counts.Faults[b], e.counts.Faults[a]) })
	if len(kinds) > 0 { // not how many of each: they count earlier runs of the map, and not the segments under way
		message += fmt.Sprintf(", mostly %s", kinds[0])
	}
	kind := gpumux.TaskError
	if len(kinds) > 0 {
		kind = kinds[0]
	}
	if n := len(e.recent); n > 0 {
		last := e.recent[n-1]
		message += fmt.Sprintf("; such as item %d: %s", last.Index, last.Fault.Error())
	}
	return faultError(message, &gpumux.Fault{Kind: kind, Op: "run", Message: message, Task: e.in.Task,
		Hint: "`gpumux faults` groups them by cause; what has finished is kept, and the map started again goes on with the items that have no " +
			"result, of which as many may fail"})
}

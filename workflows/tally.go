package workflows

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

const maxRecent = 5

// tally sums the finished chunks of a stage.
type tally struct {
	contract.Counts
	// ran is how many items took busy, those that were stored already aside.
	ran    int64
	busy   time.Duration
	peaks  gpumux.Peaks
	use    gpumux.GPUUse
	chunks int64
}

// add adds the result of a chunk, which was counted when it was handed out.
func (t *tally) add(r contract.ChunkResult) {
	t.Add(r.Counts)
	t.ran += r.Ran
	t.busy += time.Duration(r.Busy)
	t.peaks.Merge(r.Peak)
	t.use.Add(r.GPU)
}

func (t *tally) absorb(done contract.StageCarry) {
	t.Add(done.Counts)
	t.chunks += done.Chunks
	t.ran += done.Ran
	t.busy += time.Duration(done.Busy)
	t.peaks.Merge(done.Peak)
	t.use.Add(done.GPU)
}

// failures says how many items may fail, and has the newest that did.
type failures struct {
	// max is the most that do not end the map; negative means unlimited.
	max    int64
	recent []gpumux.Result
}

// add keeps the newest failures, in a list of its own.
func (f *failures) add(newest []gpumux.Result) {
	f.recent = slices.Concat(f.recent, newest)
	f.recent = f.recent[max(0, len(f.recent)-maxRecent):]
}

// allow sets how many more items may fail after this many failures; negative means any
// number.
func (f *failures) allow(failed, more int64) {
	if f.max = -1; more >= 0 {
		f.max = failed + more
	}
}

// mayFail is how many more items may fail after this many failures; nil means any number.
func (f *failures) mayFail(failed int64) *int64 {
	if f.max < 0 {
		return nil
	}
	return new(max(0, f.max-failed))
}

func (f *failures) tooMany(failed int64) bool { return f.max >= 0 && failed > f.max }

// tooManyError is the error of a map that ended after this many failures, the newest of
// which are recent. If none may fail, it has the first one's fault.
func (e *engine) tooManyError(failed int64, recent []gpumux.Result, hint string) error {
	allowed, summary := e.in.MaxFailures.Count(e.total), e.summary()
	if allowed == 0 && len(recent) > 0 {
		first := recent[0]
		return faultError(fmt.Sprintf("item %d failed, and none may: %s", first.Index, textOf(first.Fault)), first.Fault)
	}
	failed -= e.failures.max - allowed // those of earlier runs
	message := fmt.Sprintf("%d of %d items failed, more than the %d that may (%s)", failed, e.total, allowed, e.in.MaxFailures)
	kind, highest := gpumux.FaultTaskError, int64(0)
	for _, each := range sortedKeys(summary.Faults) {
		if n := summary.Faults[each]; n > highest {
			kind, highest = each, n
		}
	}
	if highest > 0 { // without n: it counts earlier runs of the map, but no segment under way
		message += fmt.Sprintf(", mostly %s", kind)
	}
	if n := len(recent); n > 0 {
		last := recent[n-1]
		message += fmt.Sprintf("; such as item %d: %s", last.Index, last.Fault.Error())
	}
	return errorOf(&gpumux.Fault{Kind: kind, Op: "run", Message: message, Task: e.in.Name(), Hint: hint})
}

// sortedKeys are the keys of a map in order, so that a replay repeats it.
//
//workflowcheck:ignore
func sortedKeys[V any, K cmp.Ordered](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

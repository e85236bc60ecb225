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

// tally sums the finished chunks of a map, and says how many items may fail.
type tally struct {
	counts contract.Counts
	// maxFailures is the most failures that do not end the map; negative means unlimited.
	maxFailures int64
	busy        time.Duration
	peaks       gpumux.Peaks
	chunks      int64
	recent      []gpumux.Result
}

// add adds the result of a chunk, which was counted when it was handed out.
func (t *tally) add(r contract.ChunkResult) {
	t.counts.Add(r.Succeeded, r.Failed, r.Faults)
	t.busy += time.Duration(r.Busy)
	t.peaks.Merge(r.Peak)
	t.addRecent(r.Recent)
}

// addRecent keeps the newest failures, in a list of its own.
func (t *tally) addRecent(failures []gpumux.Result) {
	t.recent = slices.Concat(t.recent, failures)
	t.recent = t.recent[max(0, len(t.recent)-maxRecent):]
}

func (t *tally) absorb(done contract.Carry) {
	t.counts.Add(done.Succeeded, done.Failed, done.Faults)
	t.chunks += done.Chunks
	t.busy += time.Duration(done.Busy)
	t.peaks.Merge(done.Peak)
	t.addRecent(done.Recent)
}

// allow sets how many more items may fail; negative means any number.
func (t *tally) allow(failures int64) {
	if t.maxFailures = -1; failures >= 0 {
		t.maxFailures = t.counts.Failed + failures
	}
}

// mayFail is how many more items may fail after this many failures; nil means any number.
func (t *tally) mayFail(failed int64) *int64 {
	if t.maxFailures < 0 {
		return nil
	}
	left := max(0, t.maxFailures-failed)
	return &left
}

func (t *tally) tooMany(failed int64) bool { return t.maxFailures >= 0 && failed > t.maxFailures }

// tooManyError is the error of a map of so many items that ended after this many
// failures, the newest of which are recent. If none may fail, it has the first one's
// fault.
func (t *tally) tooManyError(in gpumux.MapInput, total, failed int64, recent []gpumux.Result, hint string) error {
	allowed := in.MaxFailures.Count(total)
	if allowed == 0 && len(recent) > 0 {
		first := recent[0]
		return faultError(fmt.Sprintf("item %d failed, and none may: %s", first.Index, textOf(first.Fault)), first.Fault)
	}
	failed -= t.maxFailures - allowed // those of earlier runs
	message := fmt.Sprintf("%d of %d items failed, more than the %d that may (%s)", failed, total, allowed, in.MaxFailures)
	kind, highest := gpumux.FaultTaskError, int64(0)
	for _, each := range sortedKeys(t.counts.Faults) {
		if n := t.counts.Faults[each]; n > highest {
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
	return errorOf(&gpumux.Fault{Kind: kind, Op: "run", Message: message, Task: in.Task, Hint: hint})
}

type collector struct {
	results []gpumux.Result
	bytes   int
}

func (c *collector) keep(r gpumux.Result) {
	c.bytes += r.Weight()
	c.results = append(c.results, r)
}

func (c *collector) ordered() []gpumux.Result {
	slices.SortFunc(c.results, func(a, b gpumux.Result) int { return int(a.Index - b.Index) })
	return c.results
}

// sortedKeys are the keys of a map in order, so that a replay repeats it.
//
//workflowcheck:ignore
func sortedKeys[V any, K cmp.Ordered](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

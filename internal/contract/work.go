package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/gpumux/gpumux/internal/text"
)

// Work is which items are to run: Runs, or the positions Start up to but not including
// End of a work list in the store, if the runs are too many to travel.
type Work struct {
	Runs Runs `json:"runs,omitempty"`
	// List is a file of indices, one per line, with its index like any source.
	List *Source `json:"list,omitempty"`
	// Start and End are 0 without a list.
	Start int64 `json:"start,omitempty"`
	End   int64 `json:"end,omitempty"`
}

// Source is a file of items with its index, as IndexSource found it.
type Source struct {
	URL string `json:"url"`
	// Index is where the index lies; see package store.
	Index string `json:"index"`
	Items int64  `json:"items"`
	Bytes int64  `json:"bytes"`
	// Hash is a hash of the source's contents, which tells its versions apart.
	Hash string `json:"hash,omitempty"`
	// Values says that the items are the values in a results file, or with Failed its failed
	// items.
	Values bool `json:"values,omitempty"`
	Failed bool `json:"failed,omitempty"`
}

// Whole is the work of a map of so many items.
func Whole(items int64) Work {
	if items == 0 {
		return Work{}
	}
	return Work{Runs: Runs{{Start: 0, End: items}}}
}

func (w Work) Len() int64 {
	if w.List != nil {
		return w.End - w.Start
	}
	return w.Runs.Len()
}

// MaxRuns is how many runs one chunk carries at most.
const MaxRuns = 1024

// Take cuts the next chunk of at most n items off.
func (w *Work) Take(n int64) Work { return w.take(n, MaxRuns) }

// Cut is Take of exactly n items, or all that there are.
func (w *Work) Cut(n int64) Work { return w.take(n, len(w.Runs)) }

func (w *Work) take(n int64, runs int) Work {
	if w.List == nil {
		return Work{Runs: w.Runs.Take(n, runs)}
	}
	taken := *w
	taken.End = min(w.End, w.Start+n)
	w.Start = taken.End
	return taken
}

// After is all but the first n items.
func (w Work) After(n int64) Work {
	if w.List == nil {
		return Work{Runs: w.Runs.After(n)}
	}
	w.Start = min(w.End, w.Start+n)
	return w
}

// Describe names the items for people.
func (w Work) Describe() string {
	switch n := w.Len(); {
	case w.List != nil:
		return fmt.Sprintf("%d items of a work list from its place %d", n, w.Start)
	case n == 1:
		return fmt.Sprintf("item %d", w.Runs[0].Start)
	case len(w.Runs) == 1:
		return fmt.Sprintf("items %d-%d", w.Runs[0].Start, w.Runs[0].End-1)
	default:
		return fmt.Sprintf("%d items from %d to %d", n, w.Runs[0].Start, w.Runs[len(w.Runs)-1].End-1)
	}
}

// Span is the items Start up to but not including End.
type Span struct {
	Start int64 `json:"start"`
	End   int64 `json:"end"`
}

func (s Span) Len() int64 { return s.End - s.Start }

// Runs are items by index: sorted spans that neither touch nor overlap. In JSON they are
// one list of numbers: the first index, how many follow each other, then in turn how many
// are left out and how many follow. Items 5, 6, 7 and 10 are [5,3,2,1].
type Runs []Span

func (r Runs) Len() (n int64) {
	for _, run := range r {
		n += run.Len()
	}
	return n
}

// Take cuts the first n items off, or fewer if they lie in more than so many runs. Copies
// of r do not change.
func (r *Runs) Take(n int64, runs int) (taken Runs) {
	rest := *r
	for len(rest) > 0 && n > 0 && len(taken) < runs {
		run := rest[0]
		if run.Len() > n {
			run.End = run.Start + n
			rest = slices.Clone(rest)
			rest[0].Start = run.End
		} else {
			rest = rest[1:]
		}
		n -= run.Len()
		taken = append(taken, run)
	}
	*r = rest
	return taken
}

// After is all but the first n items.
func (r Runs) After(n int64) Runs {
	r.Take(n, len(r))
	return r
}

// Find returns the run that an index is in, or the one behind it.
func (r Runs) Find(index int64) (at int, inside bool) {
	at, _ = slices.BinarySearchFunc(r, index, func(run Span, index int64) int {
		if run.End <= index {
			return -1
		}
		return 1
	})
	return at, at < len(r) && r[at].Start <= index
}

// Covers reports whether all items of a span are among them.
func (r Runs) Covers(span Span) bool {
	at, inside := r.Find(span.Start)
	return inside && span.End <= r[at].End
}

func (r Runs) Has(index int64) bool { return r.Covers(Span{index, index + 1}) }

// Add adds an index. It is fast for one behind all others.
func (r *Runs) Add(index int64) {
	all, n := *r, len(*r)
	if n == 0 || all[n-1].End < index {
		*r = append(all, Span{index, index + 1})
		return
	}
	at, inside := n, false
	if all[n-1].End > index {
		at, inside = all.Find(index)
	}
	if inside {
		return
	}
	before, behind := at > 0 && all[at-1].End == index, at < n && all[at].Start == index+1
	switch {
	case before && behind:
		all[at-1].End = all[at].End
		all = slices.Delete(all, at, at+1)
	case before:
		all[at-1].End++
	case behind:
		all[at].Start--
	default:
		all = slices.Insert(all, at, Span{index, index + 1})
	}
	*r = all
}

// Without is what is left of the items when others are taken out.
func (r Runs) Without(other Runs) (rest Runs) {
	for _, run := range r {
		at, _ := other.Find(run.Start)
		for ; at < len(other) && other[at].Start < run.End; at++ {
			if other[at].Start > run.Start {
				rest = append(rest, Span{run.Start, other[at].Start})
			}
			run.Start = other[at].End
		}
		if run.Start < run.End {
			rest = append(rest, run)
		}
	}
	return rest
}

func (r Runs) Union(other Runs) Runs {
	all := make(Runs, 0, len(r)+len(other))
	for len(r) > 0 || len(other) > 0 {
		if len(r) == 0 || len(other) > 0 && other[0].Start < r[0].Start {
			r, other = other, r
		}
		run := r[0]
		r = r[1:]
		if n := len(all); n > 0 && run.Start <= all[n-1].End {
			all[n-1].End = max(all[n-1].End, run.End)
		} else {
			all = append(all, run)
		}
	}
	return all
}

func (r Runs) MarshalJSON() ([]byte, error) {
	numbers := make([]int64, 0, 2*len(r))
	end := int64(0)
	for _, run := range r {
		numbers = append(numbers, run.Start-end, run.Len())
		end = run.End
	}
	return json.Marshal(numbers)
}

var errRuns = errors.New("items are a list of numbers: the first index, how many follow each other, how many are left out, how many follow, …")

func (r *Runs) UnmarshalJSON(data []byte) error {
	var numbers []int64
	if err := json.Unmarshal(data, &numbers); err != nil {
		return errRuns
	}
	if len(numbers)%2 == 1 {
		return fmt.Errorf("%w; the last count is missing", errRuns)
	}
	runs := make(Runs, 0, len(numbers)/2)
	end := int64(0)
	for at := 0; at < len(numbers); at += 2 {
		gap, count := numbers[at], numbers[at+1]
		if gap < 0 || gap == 0 && at > 0 || count < 1 || gap > math.MaxInt64-end || count > math.MaxInt64-end-gap {
			return fmt.Errorf("%w; %d and %d at position %d are none", errRuns, gap, count, at)
		}
		runs = append(runs, Span{end + gap, end + gap + count})
		end += gap + count
	}
	*r = runs
	return nil
}

// Label is the part of an item that its result has: the named field, null where it is
// missing, and the whole item if asked for.
func Label(item json.RawMessage, name string, whole bool) (key, all json.RawMessage) {
	if name != "" {
		if key = text.FieldOf(item, name); key == nil {
			key = json.RawMessage("null")
		}
	}
	if whole {
		all = item
	}
	return key, all
}

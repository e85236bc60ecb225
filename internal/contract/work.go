package contract

import (
	"fmt"
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
	// Values says that the items are the values in a results file.
	Values bool `json:"values,omitempty"`
}

// Whole is the work of a map of so many items.
func Whole(items int64) Work {
	if items == 0 {
		return Work{}
	}
	return Work{Runs: Runs{{Start: 0, End: items}}}
}

// Len is the number of items.
func (w Work) Len() int64 {
	if w.List != nil {
		return w.End - w.Start
	}
	return w.Runs.Len()
}

// mostRuns is how many runs one chunk carries at most.
const mostRuns = 1024

// Take cuts the next chunk of at most n items off.
func (w *Work) Take(n int64) Work { return w.take(n, mostRuns) }

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

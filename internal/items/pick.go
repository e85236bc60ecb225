package items

import (
	"context"
	"encoding/json"

	"github.com/gpumux/gpumux/internal/contract"
)

// bridgeBytes is how many bytes may lie between runs that are read together.
const bridgeBytes = 256 << 10

// Pick calls f with the items of the runs, as Items gives them, until f returns false.
func (s *Sources) Pick(ctx context.Context, src contract.Source, runs contract.Runs, f func(index int64, item json.RawMessage) bool) error {
	more := true
	for len(runs) > 0 && more {
		index, near := runs[0].Start, nearRuns(src, runs)
		err := s.eachItem(ctx, src, index, runs[near-1].End, func(item []byte) bool {
			at := index
			index++
			if at < runs[0].Start {
				return true
			}
			if index == runs[0].End {
				runs = runs[1:]
			}
			more = f(at, item)
			return more
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// nearRuns is how many runs are read together: the first, and those close behind it.
func nearRuns(src contract.Source, runs contract.Runs) int {
	gap := bridgeBytes / max(1, src.Bytes/max(1, src.Items))
	n := 1
	for n < len(runs) && runs[n].Start-runs[n-1].End <= gap {
		n++
	}
	return n
}

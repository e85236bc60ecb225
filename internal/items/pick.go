package items

import (
	"cmp"
	"context"
	"encoding/json"
	"sync"

	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/objects"
)

// One request reads neighbouring runs with at most so many bytes between them.
const bridgeBytes = 256 << 10

// Pick calls f with the items of the runs, as Items gives them, until f returns false.
func (s *Sources) Pick(ctx context.Context, src contract.Source, runs contract.Runs, f func(index int64, item json.RawMessage) bool) error {
	stretches := groupNear(src, runs)
	if len(stretches) == 1 || s.in.OnDisk() {
		for _, stretch := range stretches {
			on := true
			if err := s.pickStretch(ctx, src, stretch, func(index int64, item json.RawMessage) bool {
				on = f(index, item)
				return on
			}); err != nil || !on {
				return err
			}
		}
		return nil
	}
	return s.pickAhead(ctx, src, stretches, f)
}

// groupNear groups runs that are near each other.
func groupNear(src contract.Source, runs contract.Runs) (stretches []contract.Runs) {
	near := bridgeBytes / max(1, src.Bytes/max(1, src.Items))
	from := 0
	for i := range runs {
		if i+1 == len(runs) || runs[i+1].Start-runs[i].End > near {
			stretches = append(stretches, runs[from:i+1])
			from = i + 1
		}
	}
	return stretches
}

// pickStretch reads one stretch, and leaves out the items between its runs.
func (s *Sources) pickStretch(ctx context.Context, src contract.Source, runs contract.Runs, f func(int64, json.RawMessage) bool) error {
	index := runs[0].Start
	return s.eachItem(ctx, src, index, runs[len(runs)-1].End, func(item []byte) bool {
		at := index
		index++
		if at < runs[0].Start {
			return true
		}
		if index == runs[0].End {
			runs = runs[1:]
		}
		return f(at, item)
	})
}

// pickAhead reads far stretches on a server side by side, and gives them in order.
func (s *Sources) pickAhead(ctx context.Context, src contract.Source, stretches []contract.Runs, f func(int64, json.RawMessage) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	ahead := make([]chan calls.Item, len(stretches))
	errs := make([]error, len(stretches))
	start := func(i int) {
		// A stretch holds only a few items before its turn, so that memory stays bounded.
		ahead[i] = make(chan calls.Item, 16)
		wait.Go(func() {
			defer close(ahead[i])
			errs[i] = s.pickStretch(ctx, src, stretches[i], func(index int64, item json.RawMessage) bool {
				select {
				case ahead[i] <- calls.Item{Index: index, Value: item}:
					return true
				case <-ctx.Done():
					return false
				}
			})
		})
	}
	next := 0
	for at := range stretches {
		for ; next < min(at+objects.Abreast/2, len(stretches)); next++ {
			start(next)
		}
		for item := range ahead[at] {
			if !f(item.Index, item.Value) {
				return nil
			}
		}
		if err := cmp.Or(errs[at], ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}

package store

import (
	"cmp"
	"context"
	"encoding/json"
	"sync"

	"github.com/gpumux/gpumux"
)

// Runs of items are read in one request where so many bytes of others lie between them at most.
const bridgeBytes = 256 << 10

// Pick calls f with the items of the runs, in order, which f may keep, until f returns false.
func (s *Store) Pick(ctx context.Context, src gpumux.Source, runs gpumux.Runs, f func(index int64, item json.RawMessage) bool) error {
	stretches := bridge(src, runs)
	if len(stretches) == 1 || s.home.dir != "" {
		for _, stretch := range stretches {
			on := true
			if err := s.pick(ctx, src, stretch, func(index int64, item json.RawMessage) bool {
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

// bridge groups runs that are near each other.
func bridge(src gpumux.Source, runs gpumux.Runs) (stretches []gpumux.Runs) {
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

// pick reads one stretch, and leaves out what lies between its runs.
func (s *Store) pick(ctx context.Context, src gpumux.Source, runs gpumux.Runs, f func(int64, json.RawMessage) bool) error {
	index := runs[0].Start
	err := s.items(ctx, src, index, runs[len(runs)-1].End, func(item []byte) bool {
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
	if err != nil {
		s.forget(src)
	}
	return err
}

// pickAhead reads stretches that are far apart on a server side by side, each a short one as a rule, and gives them in order.
func (s *Store) pickAhead(ctx context.Context, src gpumux.Source, stretches []gpumux.Runs, f func(int64, json.RawMessage) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	type picked struct {
		index int64
		item  json.RawMessage
	}
	ahead, next := make([]chan picked, 0, abreast/2), 0
	errs := make([]error, len(stretches))
	for at := range stretches {
		for len(ahead) < cap(ahead) && next < len(stretches) {
			// A stretch waits with a few items in hand, so that memory stays bounded.
			items, i := make(chan picked, 16), next
			wait.Go(func() {
				defer close(items)
				errs[i] = s.pick(ctx, src, stretches[i], func(index int64, item json.RawMessage) bool {
					select {
					case items <- picked{index, item}:
						return true
					case <-ctx.Done():
						return false
					}
				})
			})
			ahead = append(ahead, items)
			next++
		}
		for p := range ahead[0] {
			if !f(p.index, p.item) {
				return nil
			}
		}
		if err := cmp.Or(errs[at], ctx.Err()); err != nil {
			return err
		}
		ahead = append(ahead[:0], ahead[1:]...)
	}
	return nil
}

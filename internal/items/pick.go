package items

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/objects"
)

const (
	// One request reads neighbouring runs with at most so many bytes between them.
	bridgeBytes = 256 << 10
	// A stretch that is read before its turn has at most about so many bytes.
	stretchBytes = 4 << 20
)

// Pick calls f with the items of the runs, as Items gives them, until f returns false. On
// a server it reads far stretches side by side.
func (s *Sources) Pick(ctx context.Context, src contract.Source, runs contract.Runs, f func(index int64, item json.RawMessage) bool) error {
	if len(runs) == 1 {
		return s.pickStretch(ctx, src, runs, f)
	}
	limit := objects.Abreast / 2
	if s.in.OnDisk() {
		limit = 1
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	read := func(stretch contract.Runs) (all []calls.Item, err error) {
		err = s.pickStretch(ctx, src, stretch, func(index int64, item json.RawMessage) bool {
			all = append(all, calls.Item{Index: index, Value: item})
			return true
		})
		return all, err
	}
	for all, err := range objects.Ahead(limit, slices.Values(groupNear(src, runs)), read) {
		for _, item := range all {
			if !f(item.Index, item.Value) {
				cancel()
				return nil
			}
		}
		if err := cmp.Or(err, ctx.Err()); err != nil {
			cancel()
			return err
		}
	}
	return nil
}

// groupNear groups runs that are near each other into stretches.
func groupNear(src contract.Source, runs contract.Runs) (stretches []contract.Runs) {
	mean := max(1, src.Bytes/max(1, src.Items))
	var stretch contract.Runs
	for _, run := range runs {
		for run.Start < run.End {
			part := contract.Span{Start: run.Start, End: min(run.End, run.Start+max(1, stretchBytes/mean))}
			if n := len(stretch); n > 0 &&
				(part.Start-stretch[n-1].End > bridgeBytes/mean || part.End-stretch[0].Start > stretchBytes/mean) {
				stretches = append(stretches, stretch)
				stretch = nil
			}
			stretch = append(stretch, part)
			run.Start = part.End
		}
	}
	if len(stretch) > 0 {
		stretches = append(stretches, stretch)
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

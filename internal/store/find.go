package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/items"
	"github.com/gpumux/gpumux/internal/objects"
)

const maxDamaged = 5

// FindParts claims a folder for its owner and says which items have no result there. Of a
// map of several stages it says it for each: an item goes on behind the last stage that
// has it. It sets damaged parts aside and names them.
func (s *Store) FindParts(ctx context.Context, in contract.PartsInput) (found contract.Found, err error) {
	f, err := s.Folder(in.Parts)
	if err != nil {
		return found, err
	}
	if found.Claim, err = f.claim(ctx, in.Owner); err != nil {
		if other, isOther := errors.AsType[*OwnerError](err); isOther && other.edition != "" && len(in.Stages) > 0 {
			return contract.Found{Taken: other.edition}, nil
		}
		return found, err
	}
	if err := s.findRest(ctx, f, in, &found); err != nil {
		return found, fmt.Errorf("read the parts in %s: %w", f.in.Locate(f.key), err)
	}
	if n := len(found.Damaged); n > maxDamaged {
		found.Damaged = append(found.Damaged[:maxDamaged], fmt.Sprintf("and %d more", n-maxDamaged))
	}
	return found, nil
}

// ahead is the next line of a stage's results.
type ahead struct {
	line
	next func() (line, error, bool)
	more bool
}

func (s *Store) findRest(ctx context.Context, last *Folder, in contract.PartsInput, found *contract.Found) error {
	n := len(in.Stages) + 1
	found.Stages = make([]contract.FoundStage, n)
	rests, heads := make([]*items.RestWriter, n), make([]ahead, n)
	for at := range n {
		f := last
		if at < n-1 {
			var err error
			if f, err = s.Folder(in.Stages[at]); err != nil {
				return err
			}
		}
		lost := f.lost(ctx, func(err error) { found.Damaged = append(found.Damaged, err.Error()) })
		parts, err := f.parts(ctx, lost)
		if err == nil && at < n-1 {
			err = f.writeCatalog(ctx, parts)
		}
		if err != nil {
			return err
		}
		next, stop := iter.Pull2(f.each(ctx, parts, lost, in.Items))
		defer stop()
		heads[at].next = next
		if heads[at].line, err, heads[at].more = next(); err != nil {
			return err
		}
		rests[at] = s.Sources.Rest(last.key)
		defer rests[at].Abort()
	}
	next := int64(0)
	for {
		index := in.Items
		for _, h := range heads {
			if h.more {
				index = min(index, h.Index)
			}
		}
		if err := rests[0].Add(ctx, contract.Span{Start: next, End: index}); err != nil {
			return err
		}
		if index == in.Items {
			break
		}
		next = index + 1
		reached, failed, kind := 0, n, gpumux.FaultKind("")
		for at := range heads {
			h := &heads[at]
			if !h.more || h.Index != index {
				continue
			}
			if reached = at; h.Kind != "" && at < failed {
				failed, kind = at, h.Kind
			}
			var err error
			if h.line, err, h.more = h.next(); err != nil {
				return err
			}
		}
		for at := range min(reached+1, failed) {
			found.Stages[at].Count("")
		}
		if failed < n {
			found.Stages[failed].Count(kind)
		}
		if reached < n-1 {
			if err := rests[reached+1].Add(ctx, contract.Span{Start: index, End: index + 1}); err != nil {
				return err
			}
		}
	}
	for at := range n {
		var err error
		if found.Stages[at].Rest, err = rests[at].Finish(); err != nil {
			return err
		}
	}
	return nil
}

// each yields the first result of each item, in order. There are so many items.
func (f *Folder) each(ctx context.Context, parts []part, lost func(error) error, items int64) iter.Seq2[line, error] {
	return func(yield func(line, error) bool) {
		for l, err := range f.walk(ctx, parts, lost) {
			switch {
			case err != nil:
			case ctx.Err() != nil:
				err = context.Cause(ctx)
			case l.Index >= items:
				err = &OwnerError{Problem: fmt.Sprintf("%s holds item %d, but there are only %d; the folder is another map's, give another output",
					f.in.Locate(f.key), l.Index, items)}
			}
			if !yield(l, err) || err != nil {
				return
			}
		}
	}
}

// Merge counts the results of all parts of a folder and writes them to one file in order
// of index. Parts may overlap and fill each other's holes. Where an index has no result,
// nothing is written, and Merged says what is missing. Damaged parts are set aside.
func (s *Store) Merge(ctx context.Context, in contract.MergeInput) (merged contract.Merged, err error) {
	defer func() {
		if err != nil {
			merged, err = contract.Merged{}, fmt.Errorf("merge %s into %s: %w", in.Parts, in.Output, err)
		}
	}()
	output, err := s.Objects.Output(in.Output)
	if err != nil {
		return merged, err
	}
	f, err := s.Folder(in.Parts)
	if err != nil {
		return merged, err
	}
	if in.Items < 0 {
		return merged, fmt.Errorf("%d items are less than none", in.Items)
	}
	if err := f.CheckOwner(ctx, in.Claim); err != nil {
		return merged, err
	}
	return f.merge(ctx, in, output)
}

func (f *Folder) merge(ctx context.Context, in contract.MergeInput, output string) (merged contract.Merged, err error) {
	var damage []string
	lost := f.lost(ctx, func(err error) { damage = append(damage, err.Error()) })
	parts, err := f.parts(ctx, lost)
	if err != nil {
		return merged, err
	}
	size := int64(0)
	for _, p := range parts {
		size += p.Bytes
	}
	file, err := f.in.Create(ctx, output, objects.Creation{Bytes: size})
	if err != nil {
		return merged, err
	}
	defer file.Abort()
	to := bufio.NewWriterSize(file, 512<<10)
	merged.Items = in.Items
	var counts contract.Counts
	var failed contract.Runs
	next := int64(0)
	for l, bad := range f.each(ctx, parts, lost, in.Items) {
		if err = bad; err == nil && l.Index > next {
			break
		}
		if err == nil {
			_, err = to.Write(l.text)
		}
		if err != nil {
			return merged, err
		}
		if next++; l.Kind != "" {
			failed.Add(l.Index)
		}
		counts.Count(l.Kind)
		merged.Bytes += int64(len(l.text))
	}
	if next < in.Items {
		merged.Missing = fmt.Sprintf("item %d has no result in %s", next, in.Parts)
		if len(damage) > 0 {
			merged.Missing += "; " + damage[0]
		}
		return merged, nil
	}
	if err := errors.Join(to.Flush(), file.Close()); err != nil {
		return merged, err
	}
	for _, folder := range in.Spent {
		if err := f.s.spend(ctx, folder, failed); err != nil {
			return merged, err
		}
	}
	if len(failed) == 0 {
		in.Kept = nil // they have no faults to forget
	}
	for _, folder := range in.Kept {
		if err := f.s.spend(ctx, folder, contract.Whole(in.Items).Runs); err != nil {
			return merged, err
		}
	}
	merged.Output = f.in.Locate(output)
	merged.Counts = counts
	return merged, nil
}

package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"

	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/objects"
)

const maxDamaged = 5

// FindParts claims a folder for its owner and says which items have no result there. It
// sets damaged parts aside and names them.
func (s *Store) FindParts(ctx context.Context, in contract.PartsInput) (found contract.Found, err error) {
	f, err := s.Folder(in.Parts)
	if err != nil {
		return found, err
	}
	if found.Claim, err = f.claim(ctx, in.Owner); err != nil {
		return found, err
	}
	rest := s.Sources.Rest(f.key)
	defer rest.Abort()
	var counts contract.Counts
	next := int64(0)
	lost := f.lost(ctx, func(err error) { found.Damaged = append(found.Damaged, err.Error()) })
	parts, err := f.parts(ctx, lost)
	if err != nil {
		return found, fmt.Errorf("read the parts in %s: %w", f.in.Locate(f.key), err)
	}
	err = f.each(ctx, parts, lost, in.Items, func(l line) error {
		err := rest.Add(ctx, contract.Span{Start: next, End: l.Index})
		counts.Count(l.Kind)
		next = l.Index + 1
		return err
	})
	if err == nil {
		err = rest.Add(ctx, contract.Span{Start: next, End: in.Items})
	}
	if err != nil {
		return found, fmt.Errorf("read the parts in %s: %w", f.in.Locate(f.key), err)
	}
	found.Succeeded, found.Failed, found.Faults = counts.Succeeded, counts.Failed, counts.Faults
	if n := len(found.Damaged); n > maxDamaged {
		found.Damaged = append(found.Damaged[:maxDamaged], fmt.Sprintf("and %d more", n-maxDamaged))
	}
	found.Rest, err = rest.Finish()
	return found, err
}

// each calls take with the first result of each item, in order. There are so many items.
func (f *Folder) each(ctx context.Context, parts []part, lost func(error) error, items int64, take func(line) error) error {
	for l, err := range f.walk(ctx, parts, lost) {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case l.Index >= items:
			return &OwnerError{fmt.Sprintf("%s holds item %d, but there are only %d; the folder is another map's, give another output",
				f.in.Locate(f.key), l.Index, items)}
		}
		if err := take(l); err != nil {
			return err
		}
	}
	return nil
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

var errMissing = errors.New("an item has no result")

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
	file, err := f.in.CreateAs(ctx, output, objects.Creation{Bytes: size})
	if err != nil {
		return merged, err
	}
	defer file.Abort()
	to := bufio.NewWriterSize(file, 512<<10)
	merged.Items = in.Items
	var counts contract.Counts
	next := int64(0)
	err = f.each(ctx, parts, lost, in.Items, func(l line) error {
		if l.Index > next {
			return errMissing
		}
		next++
		counts.Count(l.Kind)
		merged.Bytes += int64(len(l.text))
		_, err := to.Write(l.text)
		return err
	})
	if err == errMissing || err == nil && next < in.Items {
		merged.Missing = fmt.Sprintf("item %d has no result in %s", next, in.Parts)
		if len(damage) > 0 {
			merged.Missing += "; " + damage[0]
		}
		return merged, nil
	}
	if err != nil {
		return merged, err
	}
	if err := errors.Join(to.Flush(), file.Close()); err != nil {
		return merged, err
	}
	merged.Output = f.in.Locate(output)
	merged.Succeeded, merged.Failed, merged.Faults = counts.Succeeded, counts.Failed, counts.Faults
	return merged, nil
}

package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// mostRuns is how many runs of items travel; a longer pattern becomes a work list.
const mostRuns = 1000

// mostRounds bounds how often a walk over parts begins anew because one was damaged, or gone, when its turn came.
const mostRounds = 100

// Find claims a folder for its owner and tells which items have no result there. Damaged parts are set aside and named.
func (s *Store) Find(ctx context.Context, in contract.PartsInput) (found contract.Found, err error) {
	folder, err := s.Key(in.Parts)
	if err != nil {
		return found, err
	}
	if found.Claim, err = s.claim(ctx, folder, in.Owner); err != nil {
		return found, err
	}
	rest := &restWriter{s: s, folder: folder}
	defer rest.abort()
	var count tally
	err = s.sound(ctx, folder, func(lines *walker) error {
		count = tally{}
		rest.abort()
		next := int64(0)
		for {
			c, err := lines.step()
			if err != nil && err != io.EOF {
				return err
			}
			index := in.Items
			if err == nil {
				index = c.index
			}
			if index > in.Items || err == nil && index == in.Items {
				return &OwnerError{fmt.Sprintf("part %s holds item %d, but there are only %d; the folder is another map's, give another output",
					c.body.url, index, in.Items)}
			}
			if missing := rest.add(ctx, gpumux.Span{Start: next, End: index}); missing != nil {
				return missing
			}
			if err == io.EOF {
				return nil
			}
			count.add(c.outcome)
			next = index + 1
		}
	}, func(err error) { found.Damaged = append(found.Damaged, err.Error()) })
	if err != nil {
		return found, fmt.Errorf("read the parts in %s: %w", s.Locate(folder), err)
	}
	found.Succeeded, found.Failed, found.Faults = count.succeeded, count.failed, count.faults
	if n := len(found.Damaged); n > keepDamaged {
		found.Damaged = append(found.Damaged[:keepDamaged], fmt.Sprintf("and %d more", n-keepDamaged))
	}
	found.Rest, err = rest.finish()
	return found, err
}

// keepDamaged is how many damaged parts are named.
const keepDamaged = 5

// sound walks over the parts of a folder. A part that proves damaged is set aside, told, and the walk begins anew without it.
func (s *Store) sound(ctx context.Context, folder string, walk func(*walker) error, told func(error)) error {
	lost := func(err error) error {
		var damaged *DamagedError
		switch {
		case errors.As(err, &damaged):
			told(err)
			return s.setAside(ctx, damaged)
		case errors.Is(err, fs.ErrNotExist):
			return nil
		}
		return err
	}
	for round := 1; ; round++ {
		names, err := s.names(ctx, folder)
		if err != nil {
			return err
		}
		parts, err := s.heads(ctx, folder, names, lost)
		if err != nil {
			return err
		}
		lines := s.walk(ctx, folder, parts)
		err = walk(lines)
		lines.close()
		var damaged *DamagedError
		if round == mostRounds || !errors.As(err, &damaged) && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := lost(err); err != nil {
			return err
		}
	}
}

// Runs returns all items that have a result in a folder.
func (s *Store) Runs(ctx context.Context, folder string) (runs gpumux.Runs, err error) {
	if folder, err = s.Key(folder); err != nil {
		return nil, err
	}
	err = s.sound(ctx, folder, func(lines *walker) error {
		for runs = nil; ; {
			c, err := lines.step()
			if err == io.EOF {
				return nil
			}
			if err != nil {
				return err
			}
			runs.Add(c.index)
		}
	}, func(error) {})
	return runs, err
}

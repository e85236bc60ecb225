package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/gpumux/gpumux/internal/contract"
)

// mostRuns is how many runs of items travel; a longer pattern becomes a work list.
const mostRuns = 1000

// mostRounds is how often a scan begins anew at most because a part was damaged or gone.
const mostRounds = 100

// Find claims a folder for its owner and says which items have no result there, and none in the cache, from which results come into the
// folder. It sets damaged parts aside and names them.
func (s *Store) Find(ctx context.Context, in contract.PartsInput) (contract.Found, error) {
	found, err := s.find(ctx, in)
	if err != nil || in.Cache == nil || found.Rest.Len() == 0 {
		return found, err
	}
	folder, err := s.Key(in.Parts)
	if err != nil {
		return found, err
	}
	cached, skipped, err := s.recall(ctx, folder, *in.Cache, found.Rest)
	if err != nil {
		return found, fmt.Errorf("take results from the cache: %w", err)
	}
	if cached > 0 {
		found, err = s.find(ctx, in)
	}
	found.Cached, found.Skipped = cached, skipped
	return found, err
}

func (s *Store) find(ctx context.Context, in contract.PartsInput) (found contract.Found, err error) {
	folder, err := s.Writable(in.Parts)
	if err != nil {
		return found, err
	}
	if found.Claim, err = s.claim(ctx, folder, in.Owner); err != nil {
		return found, err
	}
	rest := &restWriter{s: s, folder: folder}
	defer rest.abort()
	var outcomes tally
	err = s.scan(ctx, folder, func(lines *walker) error {
		outcomes = tally{}
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
			if missing := rest.add(ctx, contract.Span{Start: next, End: index}); missing != nil {
				return missing
			}
			if err == io.EOF {
				return nil
			}
			outcomes.count(c.outcome)
			next = index + 1
		}
	}, func(err error) { found.Damaged = append(found.Damaged, err.Error()) })
	if err != nil {
		return found, fmt.Errorf("read the parts in %s: %w", s.Locate(folder), err)
	}
	found.Succeeded, found.Failed, found.Faults = outcomes.succeeded, outcomes.failed, outcomes.faults
	if n := len(found.Damaged); n > mostDamaged {
		found.Damaged = append(found.Damaged[:mostDamaged], fmt.Sprintf("and %d more", n-mostDamaged))
	}
	found.Rest, err = rest.finish()
	return found, err
}

// mostDamaged is how many damaged parts are named.
const mostDamaged = 5

// scan walks over the parts of a folder. It sets a damaged part aside, calls told with the error, and begins anew without the part.
func (s *Store) scan(ctx context.Context, folder string, walk func(*walker) error, told func(error)) error {
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
		names, err := s.listParts(ctx, folder)
		if err != nil {
			return err
		}
		parts, err := s.readHeads(ctx, folder, names, lost)
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
func (s *Store) Runs(ctx context.Context, folder string) (runs contract.Runs, err error) {
	if folder, err = s.Key(folder); err != nil {
		return nil, err
	}
	err = s.scan(ctx, folder, func(lines *walker) error {
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

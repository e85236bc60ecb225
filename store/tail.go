package store

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/gpumux/gpumux"
)

// Tail reads the results in a folder of parts while they are being written. It belongs to one goroutine and holds no more
// than the names of the parts behind the first gap.
type Tail struct {
	s         *Store
	folder    string
	unordered bool
	// given are the indexes that were handed out.
	given spans
	// read are parts that need not be opened again, as far as given does not say so.
	read map[part]bool
}

// TailOptions adjust a Tail.
type TailOptions struct {
	// Unordered hands out each result as soon as it is stored. Default: in order of index, up to the first that is missing.
	Unordered bool
}

// Tail starts before the first result of a folder, which need not exist yet.
func (s *Store) Tail(folder string, o TailOptions) (*Tail, error) {
	key, err := s.Key(folder)
	if err != nil {
		return nil, err
	}
	return &Tail{s: s, folder: key, unordered: o.Unordered, read: map[part]bool{}}, nil
}

// Count is how many results were handed out.
func (t *Tail) Count() int64 { return t.given.count() }

// Gave says whether a result was handed out.
func (t *Tail) Gave(index int64) bool { return t.given.covers(index, index+1) }

// Each calls f with the line of every result that can be handed out now and was not before, each index once. A line ends with
// its newline and is valid during the call. An error of f ends the call and is returned.
func (t *Tail) Each(ctx context.Context, f func(line []byte) error) error {
	var parts []part
	known := map[part]bool{}
	err := t.s.list(ctx, t.folder, func(name string, _ int64) {
		p, ok := parsePart(name)
		switch {
		case !ok || t.given.covers(p.start, p.end):
		case t.read[p]:
			known[p] = true
		default:
			parts = append(parts, p)
		}
	})
	if err != nil {
		return fmt.Errorf("look for new results in %s: %w", t.s.Locate(t.folder), err)
	}
	t.read = known
	slices.SortFunc(parts, part.compare)
	if t.unordered {
		return t.each(ctx, parts, f)
	}
	return t.next(ctx, parts, f)
}

// next hands out what continues the results so far.
func (t *Tail) next(ctx context.Context, parts []part, f func(line []byte) error) error {
	lines := t.s.walk(ctx, t.folder, parts)
	lines.left = func(p part) { t.read[p] = true }
	defer lines.close()
	for {
		c, err := lines.step()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		switch next := t.given.count(); {
		case c.index < next:
		case c.index > next:
			return nil
		default:
			if err := t.hand(c, f); err != nil {
				return err
			}
		}
	}
}

// each hands out all that is new.
func (t *Tail) each(ctx context.Context, parts []part, f func(line []byte) error) error {
	for _, p := range parts {
		body, err := t.s.open(ctx, p.key(t.folder), 0, -1)
		if err != nil {
			return err
		}
		c := newCursor(p, 0, body, nil)
		for err = c.next(); err == nil; err = c.next() {
			if err = ctx.Err(); err == nil && !t.Gave(c.index) {
				err = t.hand(c, f)
			}
			if err != nil {
				break
			}
		}
		c.close()
		if err != io.EOF {
			return err
		}
		t.read[p] = true
	}
	return nil
}

func (t *Tail) hand(c *cursor, f func(line []byte) error) error {
	t.given.add(c.index)
	return f(c.line)
}

// spans are sorted stretches that neither touch nor overlap.
type spans []gpumux.Span

func (s spans) find(index int64) (at int, inside bool) {
	at, _ = slices.BinarySearchFunc(s, index, func(span gpumux.Span, index int64) int {
		if span.End <= index {
			return -1
		}
		return 1
	})
	return at, at < len(s) && s[at].Start <= index
}

func (s spans) covers(start, end int64) bool {
	at, inside := s.find(start)
	return inside && end <= s[at].End
}

func (s spans) count() (n int64) {
	for _, span := range s {
		n += span.End - span.Start
	}
	return n
}

func (s *spans) add(index int64) {
	at, inside := s.find(index)
	if inside {
		return
	}
	all := *s
	before, behind := at > 0 && all[at-1].End == index, at < len(all) && all[at].Start == index+1
	switch {
	case before && behind:
		all[at-1].End = all[at].End
		all = slices.Delete(all, at, at+1)
	case before:
		all[at-1].End++
	case behind:
		all[at].Start--
	default:
		all = slices.Insert(all, at, gpumux.Span{Start: index, End: index + 1})
	}
	*s = all
}

package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"

	"github.com/gpumux/gpumux"
)

// Tail reads the results in a folder of parts while they are being written. It belongs to one goroutine and holds no more
// than the names and heads of the parts.
type Tail struct {
	s         *Store
	folder    string
	unordered bool
	// given are the indexes that were handed out.
	given gpumux.Runs
	// seen are the parts that were looked at.
	seen map[partName]*seen
}

// seen is what is known of a part.
type seen struct {
	head
	// read is how many of its results were there when it was last read to its end.
	read int64
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
	return &Tail{s: s, folder: key, unordered: o.Unordered, seen: map[partName]*seen{}}, nil
}

// Count is how many results were handed out.
func (t *Tail) Count() int64 { return t.given.Len() }

// Gave reports whether a result was handed out.
func (t *Tail) Gave(index int64) bool { return t.given.Has(index) }

// Each calls f with the line of every result that can be handed out now and was not before, each index once. A line ends with
// its newline and is valid during the call. An error of f ends the call and is returned. A damaged part is passed over: what
// it held comes again, or the map says what became of it.
func (t *Tail) Each(ctx context.Context, f func(line []byte) error) error {
	parts, err := t.news(ctx)
	if err != nil {
		return fmt.Errorf("look for new results in %s: %w", t.s.Locate(t.folder), err)
	}
	if t.unordered {
		return t.each(ctx, parts, f)
	}
	return t.next(ctx, parts, f)
}

// news are the parts that may hold what was not handed out.
func (t *Tail) news(ctx context.Context) ([]part, error) {
	all, err := t.s.names(ctx, t.folder)
	if err != nil {
		return nil, err
	}
	var growing []partName
	for _, name := range all {
		if known := t.seen[name]; known == nil || !known.Full {
			growing = append(growing, name)
		}
	}
	heads, err := t.s.heads(ctx, t.folder, growing, passed)
	if err != nil {
		return nil, err
	}
	for _, p := range heads {
		if t.seen[p.partName] == nil {
			t.seen[p.partName] = &seen{}
		}
		t.seen[p.partName].head = p.head
	}
	var parts []part
	for _, name := range all {
		if p := t.seen[name]; p != nil && p.read < p.Items && !t.given.Covers(gpumux.Span{Start: p.Least, End: p.Most + 1}) {
			parts = append(parts, part{name, p.head})
		}
	}
	slices.SortFunc(parts, part.compare)
	return parts, nil
}

// passed lets go of a part that is damaged or gone.
func passed(err error) error {
	var damaged *DamagedError
	if errors.As(err, &damaged) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// next hands out what continues the results so far.
func (t *Tail) next(ctx context.Context, parts []part, f func(line []byte) error) error {
	lines := t.s.walk(ctx, t.folder, parts)
	lines.sound, lines.left = true, t.done
	defer lines.close()
	for {
		c, err := lines.step()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		switch next := t.given.Len(); {
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
		lines := t.s.walk(ctx, t.folder, []part{p})
		lines.sound, lines.left = true, t.done
		var c *cursor
		var err error
		for c, err = lines.step(); err == nil; c, err = lines.step() {
			if !t.Gave(c.index) {
				if err = t.hand(c, f); err != nil {
					break
				}
			}
		}
		lines.close()
		if err != io.EOF {
			return err
		}
	}
	return nil
}

// done notes that a part was read to its end.
func (t *Tail) done(c *cursor) {
	if p, ok := parsePart(path.Base(c.key)); ok && t.seen[p] != nil {
		t.seen[p].read = c.items
	}
}

func (t *Tail) hand(c *cursor, f func(line []byte) error) error {
	t.given.Add(c.index)
	return f(c.line)
}

package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"

	"github.com/gpumux/gpumux/internal/contract"
)

// Tail reads the results in a folder of parts while they are being written. It belongs to one goroutine and holds no more
// than the names and heads of the parts.
type Tail struct {
	s         *Store
	folder    string
	unordered bool
	// given are the indexes that were handed out.
	given contract.Runs
	// seen are the parts whose heads were read.
	seen map[partName]*seenPart
}

// seenPart is what is known of a part.
type seenPart struct {
	partHead
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
	return &Tail{s: s, folder: key, unordered: o.Unordered, seen: map[partName]*seenPart{}}, nil
}

// Count is how many results were handed out.
func (t *Tail) Count() int64 { return t.given.Len() }

// Gave reports whether a result was handed out.
func (t *Tail) Gave(index int64) bool { return t.given.Has(index) }

// Each calls f once with the line of every result that can be handed out now and was not before. A line ends with its newline and
// is valid during the call. An error of f ends the call and is returned. Each skips a damaged part: its results come again, or the
// map says what became of them.
func (t *Tail) Each(ctx context.Context, f func(line []byte) error) error {
	parts, err := t.newParts(ctx)
	if err != nil {
		return fmt.Errorf("look for new results in %s: %w", t.s.Locate(t.folder), err)
	}
	if t.unordered {
		return t.deliverAll(ctx, parts, f)
	}
	return t.deliverInOrder(ctx, parts, f)
}

// newParts returns the parts that may hold results which were not handed out.
func (t *Tail) newParts(ctx context.Context) ([]part, error) {
	all, err := t.s.listParts(ctx, t.folder)
	if err != nil {
		return nil, err
	}
	var growing []partName
	for _, name := range all {
		if known := t.seen[name]; known == nil || !known.Full {
			growing = append(growing, name)
		}
	}
	heads, err := t.s.readHeads(ctx, t.folder, growing, skipLost)
	if err != nil {
		return nil, err
	}
	for _, p := range heads {
		if t.seen[p.partName] == nil {
			t.seen[p.partName] = &seenPart{}
		}
		t.seen[p.partName].partHead = p.partHead
	}
	var parts []part
	for _, name := range all {
		if p := t.seen[name]; p != nil && p.read < p.Items && !t.given.Covers(contract.Span{Start: p.Least, End: p.Most + 1}) {
			parts = append(parts, part{name, p.partHead})
		}
	}
	slices.SortFunc(parts, part.compare)
	return parts, nil
}

// skipLost returns nil for a part that is damaged or gone.
func skipLost(err error) error {
	var damaged *DamagedError
	if errors.As(err, &damaged) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// deliverInOrder hands out the results that follow those so far without a gap.
func (t *Tail) deliverInOrder(ctx context.Context, parts []part, f func(line []byte) error) error {
	lines := t.s.walk(ctx, t.folder, parts)
	lines.verify, lines.closed = true, t.noteRead
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
			if err := t.deliver(c, f); err != nil {
				return err
			}
		}
	}
}

// deliverAll hands out all that is new.
func (t *Tail) deliverAll(ctx context.Context, parts []part, f func(line []byte) error) error {
	for _, p := range parts {
		lines := t.s.walk(ctx, t.folder, []part{p})
		lines.verify, lines.closed = true, t.noteRead
		var c *cursor
		var err error
		for c, err = lines.step(); err == nil; c, err = lines.step() {
			if !t.Gave(c.index) {
				if err = t.deliver(c, f); err != nil {
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

// noteRead notes that a part was read to its end.
func (t *Tail) noteRead(c *cursor) {
	if p, ok := parsePart(path.Base(c.key)); ok && t.seen[p] != nil {
		t.seen[p].read = c.items
	}
}

func (t *Tail) deliver(c *cursor, f func(line []byte) error) error {
	t.given.Add(c.index)
	return f(c.line)
}

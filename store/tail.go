package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"

	"github.com/gpumux/gpumux/internal/contract"
)

// Tail reads the results in a folder of parts while they are being written. It belongs to
// one goroutine and holds no more than the names and heads of the parts.
type Tail struct {
	f         *Folder
	unordered bool
	// given are the indexes that were handed out.
	given contract.Runs
	// seen are the parts whose heads were read.
	seen map[partName]*seenPart
}

// seenPart is a part with the progress of the Tail in it.
type seenPart struct {
	partHead
	// read is how many of its results a walk to the end of all parts has passed.
	read int64
}

// TailOptions adjust a Tail.
type TailOptions struct {
	// Unordered hands out each result as soon as it is stored. Default: in order of index.
	Unordered bool
}

// Tail starts before the first result.
func (f *Folder) Tail(o TailOptions) *Tail {
	return &Tail{f: f, unordered: o.Unordered, seen: map[partName]*seenPart{}}
}

// Count is how many results were handed out.
func (t *Tail) Count() int64 { return t.given.Len() }

// Gave reports whether a result was handed out.
func (t *Tail) Gave(index int64) bool { return t.given.Has(index) }

// Lines yields the line of every new result once, without its newline; a line is valid
// until the next step. After an error nothing follows. Lines skips a damaged part: its
// results come again, or the map says what became of them.
func (t *Tail) Lines(ctx context.Context) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		parts, err := t.newParts(ctx)
		if err != nil {
			yield(nil, fmt.Errorf("look for new results in %s: %w", t.f.in.Locate(t.f.key), err))
			return
		}
		for l, err := range t.f.walk(ctx, parts, skipLost) {
			switch next := t.given.Len(); {
			case err != nil:
				yield(nil, err)
				return
			case t.Gave(l.Index):
				continue
			case !t.unordered && l.Index > next:
				return
			}
			t.given.Add(l.Index)
			if !yield(bytes.TrimSuffix(l.text, []byte{'\n'}), nil) {
				return
			}
		}
		for _, p := range parts {
			t.seen[p.partName].read = p.Items
		}
	}
}

// newParts returns the parts that may hold results which were not handed out.
func (t *Tail) newParts(ctx context.Context) ([]part, error) {
	all, err := t.f.names(ctx)
	if err != nil {
		return nil, err
	}
	var growing []partName
	for _, name := range all {
		if known := t.seen[name]; known == nil || !known.Full {
			growing = append(growing, name)
		}
	}
	heads, err := t.f.heads(ctx, growing, skipLost)
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
	var damaged *partError
	if errors.As(err, &damaged) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

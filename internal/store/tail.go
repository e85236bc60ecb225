package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"time"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/results"
	"github.com/gpumux/gpumux/internal/text"
)

// New results are looked for about as often as workers write them.
const lookOnDisk, lookOnServer = 250 * time.Millisecond, time.Second

// Tail reads the results in a folder of parts while they are being written. It belongs to
// one goroutine and holds no more than the names and heads of the parts.
type Tail struct {
	f         *Folder
	unordered bool
	taken     contract.Runs
	seen      map[partName]*seenPart
}

// seenPart is a part with the progress of the Tail in it.
type seenPart struct {
	partHead
	// read is how many of its results a walk to the end of all parts has passed.
	read int64
}

// Tail starts before the first result. It hands out the results in order of index, or
// unordered, each as soon as it is stored.
func (f *Folder) Tail(unordered bool) *Tail {
	return &Tail{f: f, unordered: unordered, seen: map[partName]*seenPart{}}
}

func (t *Tail) Count() int64 { return t.taken.Len() }

func (t *Tail) Gave(index int64) bool { return t.taken.Has(index) }

// Lines yields the line of every new result once, without its newline; a line is valid
// until the next step. It goes on until over is closed, with an empty line where nothing
// more is there at the moment; a nil over ends it at the first of those. Meanwhile an
// error of the store may pass. After an error nothing follows. Lines skips a damaged
// part: its results come again, or the map says what became of them.
func (t *Tail) Lines(ctx context.Context, over <-chan struct{}) iter.Seq2[[]byte, error] {
	pause := lookOnServer
	if t.f.in.OnDisk() {
		pause = lookOnDisk
	}
	return func(yield func([]byte, error) bool) {
		for last := over == nil; ; {
			select {
			case <-over:
				last = true // known before the look, so that this one sees everything
			default:
			}
			before := t.Count()
			more, err := t.look(ctx, yield)
			switch {
			case !more:
				return
			case err != nil && last:
				yield(nil, err)
				return
			case last, t.Count() > before && !yield(nil, nil):
				return
			}
			select {
			case <-over:
			case <-time.After(pause):
			case <-ctx.Done():
				yield(nil, context.Cause(ctx))
				return
			}
		}
	}
}

// look yields what is new, and reports whether the caller wants more.
func (t *Tail) look(ctx context.Context, yield func([]byte, error) bool) (more bool, err error) {
	parts, err := t.newParts(ctx)
	if err != nil {
		return true, fmt.Errorf("look for new results in %s: %w", t.f.in.Locate(t.f.key), err)
	}
	for l, err := range t.f.walk(ctx, parts, skipLost) {
		switch next := t.taken.Len(); {
		case err != nil:
			return true, err
		case t.Gave(l.Index):
			continue
		case !t.unordered && l.Index > next:
			return true, nil
		}
		t.taken.Add(l.Index)
		if !yield(bytes.TrimSuffix(l.text, []byte{'\n'}), nil) {
			return false, nil
		}
	}
	for _, p := range parts {
		t.seen[p.partName].read = p.Items
	}
	return true, nil
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
		if p := t.seen[name]; p != nil && p.read < p.Items && !t.taken.Covers(contract.Span{Start: p.First, End: p.Last + 1}) {
			parts = append(parts, part{name, p.partHead})
		}
	}
	slices.SortFunc(parts, part.compare)
	return parts, nil
}

func skipLost(err error) error {
	if errors.As(err, new(*partError)) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// largestPaged is the most bytes of a result that travels in a page.
const largestPaged = 1 << 20

// Page reads results of a results file in one read, at most gpumux.InlineBytes of them
// but at least one. Any other file is a *gpumux.SourceError.
func (s *Store) Page(ctx context.Context, in contract.PageInput) (page contract.Page, err error) {
	o, err := s.Objects.Read(ctx, in.Output, in.From, largestPaged)
	if err != nil {
		return page, err
	}
	defer o.Close()
	at, size := in.From, 0
	for line, err := range results.Lines(o) {
		if err != nil {
			return page, err
		}
		if !bytes.HasSuffix(line, []byte{'\n'}) && at+int64(len(line)) < o.Size() {
			break // the next page has it whole
		}
		r, err := results.Parse(line)
		if _, bad := results.ParseOutcome(line); err != nil || bad != nil {
			return page, &gpumux.SourceError{Name: o.URL(), Problem: fmt.Sprintf("at byte %d is no line of results", at), Text: text.Beginning(bytes.TrimSpace(line)),
				Hint: "name the results file of a map, in JSON lines and not compressed, and 0 or the position that the page before gave"}
		}
		if size += r.Weight(); size > largestPaged || size > gpumux.InlineBytes && len(page.Results) > 0 {
			break
		}
		page.Results = append(page.Results, r)
		if at += int64(len(line)); len(page.Results) == in.Limit {
			break
		}
	}
	if at < o.Size() && len(page.Results) == 0 {
		return page, &gpumux.SourceError{Name: o.URL(), Problem: fmt.Sprintf("the result at byte %d has more than %s", at, gpumux.Size(largestPaged)),
			Hint: "read the file itself, or map over it with gpumux.ValuesOf"}
	}
	if at < o.Size() {
		page.Next = at
	}
	return page, nil
}

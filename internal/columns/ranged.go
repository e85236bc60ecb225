package columns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/gpumux/gpumux/internal/items"
)

const (
	// tailBytes is how much of the end of a file is read first: it says where all else is.
	tailBytes = 64 << 10
	// ahead is how much is read ahead for all columns, maxAhead and minAhead for one.
	ahead, maxAhead, minAhead = 64 << 20, 4 << 20, 64 << 10
	// maxGap is the most that is read in vain to make one stretch of two.
	maxGap = 64 << 10
)

// ranged reads a file in few large stretches: each may be a request to a server.
type ranged struct {
	from Source
	size int64
	// wanted are the stretches that will be read, in order, atOnce bytes at most at a time.
	wanted []stretch
	atOnce int64
	// kept are at most maxKept stretches that were read, the one used last at the end.
	kept    []part
	maxKept int
	// err is why the file could not be read.
	err error
}

type stretch struct{ start, end int64 }

// part is a stretch that was read.
type part struct {
	start int64
	data  []byte
}

// newRanged begins with the end of the file.
func newRanged(from Source, size int64) (*ranged, error) {
	start := max(0, size-tailBytes)
	r := &ranged{from: from, size: size, wanted: []stretch{{start, size}}, atOnce: tailBytes, maxKept: 1}
	if _, err := r.ReadAt(make([]byte, 1), start); err != nil && err != io.EOF {
		return nil, err
	}
	return r, nil
}

// want says which stretches will be read, by so many readers that each go forward.
func (r *ranged) want(all []stretch, readers int) {
	slices.SortFunc(all, func(a, b stretch) int { return cmp.Compare(a.start, b.start) })
	r.atOnce = max(minAhead, min(maxAhead, ahead/int64(max(1, readers))))
	r.maxKept, r.wanted = readers+1, nil
	for _, s := range all {
		last := len(r.wanted) - 1
		if last >= 0 && s.start-r.wanted[last].end <= maxGap && s.end-r.wanted[last].start <= r.atOnce {
			r.wanted[last].end = max(s.end, r.wanted[last].end)
			continue
		}
		r.wanted = append(r.wanted, s)
	}
}

// ReadAt is io.ReaderAt's.
func (r *ranged) ReadAt(data []byte, offset int64) (n int, err error) {
	for n < len(data) {
		at := offset + int64(n)
		if found := r.find(at); found != nil {
			n += copy(data[n:], found)
			continue
		}
		next := r.around(at)
		if next.start == at && next.end-at <= int64(len(data)-n) {
			more, err := r.read(data[n:], at)
			return n + more, err
		}
		if err := r.keep(next); err != nil {
			return n, err
		}
	}
	return n, nil
}

// find returns the kept bytes from an offset on, or nil.
func (r *ranged) find(at int64) []byte {
	i := slices.IndexFunc(r.kept, func(p part) bool { return at >= p.start && at < p.start+int64(len(p.data)) })
	if i < 0 {
		return nil
	}
	found := r.kept[i]
	r.kept = append(slices.Delete(r.kept, i, i+1), found)
	return found.data[at-found.start:]
}

// around is the stretch to read at an offset; it is empty where nothing is wanted.
func (r *ranged) around(at int64) stretch {
	i, _ := slices.BinarySearchFunc(r.wanted, at+1, func(s stretch, at int64) int { return cmp.Compare(s.end, at) })
	if i == len(r.wanted) || r.wanted[i].start > at {
		return stretch{at, at}
	}
	whole := r.wanted[i]
	if whole.end-whole.start <= r.atOnce {
		return whole
	}
	return stretch{at, min(whole.end, at+r.atOnce)}
}

// keep reads a stretch in the place of the one that was not used for longest.
func (r *ranged) keep(s stretch) error {
	var data []byte
	if len(r.kept) >= r.maxKept {
		data = r.kept[0].data
		r.kept = slices.Delete(r.kept, 0, 1)
	}
	data = slices.Grow(data[:0], int(s.end-s.start))[:s.end-s.start]
	n, err := r.read(data, s.start)
	if n < len(data) {
		return cmp.Or(err, io.ErrUnexpectedEOF)
	}
	r.kept = append(r.kept, part{s.start, data})
	return nil
}

// read reads from the file itself. That it ends too early is no error of reading it.
func (r *ranged) read(data []byte, at int64) (int, error) {
	n, err := r.from.ReadAt(data, at)
	if err != nil && err != io.EOF && r.err == nil {
		r.err = err
	}
	return n, err
}

// blame runs f. Where reading went well, its error or panic is a *items.SourceError.
func (r *ranged) blame(ctx context.Context, name string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			known, ok := p.(error)
			if !ok {
				known = fmt.Errorf("%v", p)
			}
			err = fmt.Errorf("it makes no sense: %w", known)
		}
		var mistake *items.SourceError
		switch {
		case err == nil:
		case errors.As(err, &mistake):
			mistake.Name = cmp.Or(mistake.Name, name)
			err = mistake
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case r.err != nil:
			err = r.err
		default:
			err = &items.SourceError{Name: name, Problem: fmt.Sprintf("not read as %s: %v", FormatOf(name), err),
				Hint: "check that the file is whole, and that its ending says what it is"}
		}
	}()
	return f()
}

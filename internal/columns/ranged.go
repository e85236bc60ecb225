package columns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/gpumux/gpumux"
)

const (
	// minAhead is the least that is read at once, and first of the end with the layout.
	minAhead = 64 << 10
	// smallAhead is read for a small read.
	smallAhead = 4 * minAhead
)

// ranged reads a file in few large stretches: each may be a request to a server.
type ranged struct {
	from Source
	size int64
	// window is what the last small read got, from start on.
	window []byte
	start  int64
	err    error
}

func newRanged(from Source, size int64) (*ranged, error) {
	r := &ranged{from: from, size: size}
	if _, err := r.ReadAt(make([]byte, 1), max(0, size-minAhead)); err != nil && err != io.EOF {
		return nil, err
	}
	return r, nil
}

func (r *ranged) ReadAt(data []byte, offset int64) (n int, err error) {
	if in := offset - r.start; in >= 0 && in < int64(len(r.window)) {
		n = copy(data, r.window[in:])
	}
	rest, offset := data[n:], offset+int64(n)
	if len(rest) == 0 {
		return n, nil
	}
	if len(rest) >= minAhead || offset >= r.size {
		more, err := r.read(rest, offset)
		return n + more, err
	}
	r.start, r.window = offset, slices.Grow(r.window[:0], smallAhead)[:min(smallAhead, r.size-offset)]
	more, err := r.read(r.window, offset)
	r.window = r.window[:more]
	if copied := copy(rest, r.window); copied < len(rest) {
		return n + copied, cmp.Or(err, io.ErrUnexpectedEOF)
	}
	return len(data), nil
}

// read reads from the file itself. That it ends too early is no error of reading it.
func (r *ranged) read(data []byte, at int64) (int, error) {
	n, err := r.from.ReadAt(data, at)
	if err != nil && err != io.EOF && r.err == nil {
		r.err = err
	}
	return n, err
}

// blame runs f. Where reading went well, its error or panic is a *gpumux.SourceError.
func (r *ranged) blame(ctx context.Context, name string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			known, ok := p.(error)
			if !ok {
				known = fmt.Errorf("%v", p)
			}
			err = fmt.Errorf("it makes no sense: %w", known)
		}
		var mistake *gpumux.SourceError
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
			err = &gpumux.SourceError{Name: name, Problem: fmt.Sprintf("not read as %s: %v", Parquet, err),
				Hint: "check that the file is whole, and that its ending says what it is"}
		}
	}()
	return f()
}

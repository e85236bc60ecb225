package items

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/gpumux/gpumux/internal/contract"
)

// Items streams the items start up to but not including end, as Unwrap takes them. Each
// is the caller's to keep. After an error nothing follows. What is damaged is a
// *SourceError, and no item of it is given.
func (s *Sources) Items(ctx context.Context, src contract.Source, start, end int64) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		if err := s.eachItem(ctx, src, start, end, func(item []byte) bool { return yield(item, nil) }); err != nil {
			yield(nil, err)
		}
	}
}

// eachItem calls f with each item, which f may keep, until f returns false.
func (s *Sources) eachItem(ctx context.Context, src contract.Source, start, end int64, f func([]byte) bool) (err error) {
	if start < 0 || end < start || end > src.Items {
		return fmt.Errorf("items %d to %d are not all in %s, which has %d", start, end, src.URL, src.Items)
	}
	if start == end {
		return nil
	}
	defer func() {
		if err != nil {
			s.forgetIndex(src)
		}
	}()
	x, err := s.loadIndex(ctx, src)
	if err != nil {
		return err
	}
	marks, first, err := s.readMarks(ctx, src, x, start, end)
	if err != nil {
		return err
	}
	from, to := marks[0], marks[len(marks)-1]
	o, err := s.in.ReadAny(ctx, src.URL, from.offset, to.offset-from.offset)
	if err != nil {
		return s.blame(ctx, src, src.URL, err)
	}
	defer o.Close()
	if o.Size() != x.end.offset {
		return s.changed(ctx, src, src.URL, fmt.Sprintf("it has %d bytes, and had %d", o.Size(), x.end.offset))
	}
	r := &stretchReader{s: s, src: src, from: o, lines: jsonLines{name: src.URL}}
	r.lines.r = bufio.NewReaderSize(nil, int(min(to.offset-from.offset, 256<<10)))
	for i, until := range marks[1:] {
		low := first + int64(i)*x.stride
		if err := r.open(ctx, marks[i], until); err != nil {
			return err
		}
		for at := low; at < min(low+x.stride, x.items, end); at++ {
			if err := ctx.Err(); err != nil {
				return err
			}
			item, err := r.next()
			if err != nil {
				return err
			}
			if at >= start && !f(r.lines.detach(item)) {
				return nil
			}
		}
	}
	return nil
}

// stretchReader reads the items of a source from one mark of its index to the next. It checks
// the bytes before it gives any item.
type stretchReader struct {
	s      *Sources
	src    contract.Source
	from   io.Reader
	buffer []byte
	lines  jsonLines
}

// open checks the next stretch and makes it the one whose items are read.
func (r *stretchReader) open(ctx context.Context, from, until position) error {
	size, at := until.offset-from.offset, from
	r.buffer = slices.Grow(r.buffer[:0], int(size))[:size]
	if _, err := io.ReadFull(r.from, r.buffer); err != nil {
		return r.s.blame(ctx, r.src, r.src.URL, err)
	}
	if at.pass(r.buffer); at != until {
		return r.s.changed(ctx, r.src, r.src.URL, fmt.Sprintf("bytes %d to %d are others", from.offset, until.offset-1))
	}
	r.lines.r.Reset(bytes.NewReader(r.buffer))
	r.lines.at, r.lines.left = from, size
	return nil
}

func (r *stretchReader) next() (item []byte, err error) {
	if r.src.Values {
		item, _, err = valueLines{&r.lines}.next()
	} else {
		item, _, err = r.lines.next()
	}
	if err == io.EOF {
		err = &SourceError{Name: r.src.URL, Problem: "it has fewer items than its index " + r.src.Index, Hint: "start the map anew"}
	}
	return item, err
}

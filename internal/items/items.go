package items

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/results"
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
	var buffer []byte
	for i, until := range marks[1:] {
		if buffer, err = s.readStretch(ctx, src, o, marks[i], until, buffer); err != nil {
			return err
		}
		text := buffer
		if marks[i].offset == 0 {
			text = bytes.TrimPrefix(text, []byte(bom))
		}
		at := first + int64(i)*x.stride
		for line := range bytes.Lines(text) {
			item := itemOf(src, line)
			if len(item) == 0 {
				continue
			}
			if at == end || ctx.Err() != nil {
				return ctx.Err()
			}
			if 2*len(item) > len(buffer) {
				buffer = nil // the item takes it
			} else if at >= start {
				item = bytes.Clone(item)
			}
			if at >= start && !f(item) {
				return nil
			}
			at++
		}
	}
	return nil
}

// itemOf is the item in a line of a source, or empty.
func itemOf(src contract.Source, line []byte) []byte {
	if !src.Values {
		return bytes.Trim(line, " \t\r\n")
	}
	if of, err := results.ParseOutcome(line); err != nil || of.Kind != "" {
		return nil
	}
	return bytes.TrimSuffix(line, []byte{'\n'})
}

// readStretch reads a source from one mark to the next, and checks the bytes.
func (s *Sources) readStretch(
	ctx context.Context, src contract.Source, from io.Reader, at, until position, buffer []byte,
) ([]byte, error) {
	size, begin := until.offset-at.offset, at.offset
	buffer = slices.Grow(buffer[:0], int(size))[:size]
	if _, err := io.ReadFull(from, buffer); err != nil {
		return nil, s.blame(ctx, src, src.URL, err)
	}
	if at.pass(buffer); at != until {
		return nil, s.changed(ctx, src, src.URL, fmt.Sprintf("bytes %d to %d are others", begin, until.offset-1))
	}
	return buffer, nil
}

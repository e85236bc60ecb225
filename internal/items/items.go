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
	"github.com/gpumux/gpumux/internal/objects"
	"github.com/gpumux/gpumux/internal/results"
)

// Items yields the items start to before end, as Unwrap takes them, for the caller to
// keep. Nothing follows an error. Damage is a *gpumux.SourceError, and yields no item.
func (s *Sources) Items(ctx context.Context, src contract.Source, start, end int64) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		if err := s.eachItem(ctx, src, start, end, func(item []byte) bool { return yield(item, nil) }); err != nil {
			yield(nil, err)
		}
	}
}

// eachItem calls f with each item, which f may keep, until f returns false.
func (s *Sources) eachItem(ctx context.Context, src contract.Source, start, end int64, f func([]byte) bool) error {
	if start < 0 || end < start || end > src.Items {
		return fmt.Errorf("items %d to %d are not all in %s, which has %d", start, end, src.URL, src.Items)
	}
	if start == end {
		return nil
	}
	stride, err := s.stride(ctx, src.Index)
	if err != nil {
		return s.blame(ctx, src.Index, err)
	}
	low := start / stride
	marks, err := s.readMarks(ctx, src.Index, low, (end+stride-1)/stride)
	if err != nil {
		return s.blame(ctx, src.Index, err)
	}
	from := marks[0].offset
	o, err := s.in.Read(ctx, src.URL, from, marks[len(marks)-1].offset-from)
	if err != nil {
		return s.blame(ctx, src.URL, err)
	}
	defer o.Close()
	if o.Size() != src.Bytes {
		return s.damaged(src.URL, fmt.Sprintf("it has %d bytes, and had %d", o.Size(), src.Bytes))
	}
	var buffer []byte
	for i, until := range marks[1:] {
		if buffer, err = readStretch(o, marks[i], until, buffer); err != nil {
			return s.blame(ctx, src.URL, err)
		}
		first := (low + int64(i)) * stride
		lines := linesOf(src, buffer, marks[i].offset == 0)
		if int64(len(lines)) != min(stride, src.Items-first) {
			return s.damaged(src.Index, fmt.Sprintf("it has a mark at item %d, and the next one %d items on", first, len(lines)))
		}
		for _, line := range lines[max(0, start-first):min(int64(len(lines)), end-first)] {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if !f(bytes.Clone(line)) {
				return nil
			}
		}
	}
	return nil
}

func readStretch(from io.Reader, at, until position, buffer []byte) ([]byte, error) {
	size, begin := until.offset-at.offset, at.offset
	buffer = slices.Grow(buffer[:0], int(size))[:size]
	if _, err := io.ReadFull(from, buffer); err != nil {
		return nil, err
	}
	if at.pass(buffer); at != until {
		return nil, objects.Damaged("bytes %d to %d are others", begin, until.offset-1)
	}
	return buffer, nil
}

func linesOf(src contract.Source, stretch []byte, first bool) (lines [][]byte) {
	if first {
		stretch = bytes.TrimPrefix(stretch, []byte(bom))
	}
	for line := range bytes.Lines(stretch) {
		if src.Values {
			if outcome, err := results.ParseOutcome(line); err != nil || (outcome.Kind != "") != src.Failed {
				continue
			}
			line = bytes.TrimSuffix(line, []byte{'\n'})
		} else if line = bytes.Trim(line, " \t\r\n"); len(line) == 0 {
			continue
		}
		lines = append(lines, line)
	}
	return lines
}

// bridgeBytes is how many bytes may lie between runs that are read together.
const bridgeBytes = 256 << 10

// Pick calls f with the items of the runs, as Items gives them, until f returns false.
func (s *Sources) Pick(ctx context.Context, src contract.Source, runs contract.Runs, f func(index int64, item json.RawMessage) bool) error {
	more := true
	for len(runs) > 0 && more {
		index, near := runs[0].Start, nearRuns(src, runs)
		err := s.eachItem(ctx, src, index, runs[near-1].End, func(item []byte) bool {
			at := index
			index++
			if at < runs[0].Start {
				return true
			}
			if index == runs[0].End {
				runs = runs[1:]
			}
			more = f(at, item)
			return more
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// nearRuns is how many runs are read together: the first, and those close behind it.
func nearRuns(src contract.Source, runs contract.Runs) int {
	gap := bridgeBytes / max(1, src.Bytes/max(1, src.Items))
	n := 1
	for n < len(runs) && runs[n].Start-runs[n-1].End <= gap {
		n++
	}
	return n
}

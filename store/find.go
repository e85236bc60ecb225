package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/gpumux/gpumux"
)

// Find tells which items have a result in the parts of a folder, as sorted spans that neither touch nor overlap, and counts
// them. A folder that does not exist holds none.
func (s *Store) Find(ctx context.Context, folder string) (gpumux.Found, error) {
	var found gpumux.Found
	folder, err := s.Key(folder)
	if err != nil {
		return found, err
	}
	parts, _, err := s.parts(ctx, folder)
	if err != nil {
		return found, err
	}
	lines := s.walk(ctx, folder, parts)
	defer lines.close()
	var count tally
	for {
		c, err := lines.step()
		if err == io.EOF {
			found.Succeeded, found.Failed, found.Faults = count.succeeded, count.failed, count.faults
			return found, nil
		}
		if err != nil {
			return found, fmt.Errorf("read the parts in %s: %w", s.Locate(folder), err)
		}
		count.add(c.outcome)
		if n := len(found.Spans); n > 0 && found.Spans[n-1].End == c.index {
			found.Spans[n-1].End++
		} else {
			found.Spans = append(found.Spans, gpumux.Span{Start: c.index, End: c.index + 1})
		}
	}
}

// Source is IndexSource, except that a source which PutSource put here is known by its index and not read again.
func (s *Store) Source(ctx context.Context, name, indexKey string) (gpumux.Source, error) {
	key, err := s.Key(name)
	base, put := strings.CutPrefix(key, "sources/")
	if err != nil || !put || !strings.HasSuffix(base, ".jsonl") {
		return s.IndexSource(ctx, name, indexKey)
	}
	src := gpumux.Source{URL: s.Locate(key), Index: strings.TrimSuffix(key, ".jsonl") + ".index"}
	whole, err := s.open(ctx, src.Index, 0, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return s.IndexSource(ctx, name, indexKey)
	}
	if err != nil {
		return src, err
	}
	size := whole.body.Size()
	whole.Close()
	if size < indexHead+indexTail {
		return src, damaged(src, "it has %d bytes", size)
	}
	tail, err := s.bytes(ctx, src.Index, size-indexTail, indexTail)
	if err != nil {
		return src, err
	}
	src.Items, src.Bytes = int64(binary.LittleEndian.Uint64(tail)), int64(binary.LittleEndian.Uint64(tail[8:]))
	_, err = s.indexOf(ctx, src)
	return src, err
}

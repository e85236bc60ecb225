package store

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"strings"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/names"
)

// Source is IndexSource, except that a source which PutSource put here is known by its index and not read again.
func (s *Store) Source(ctx context.Context, name, indexKey string) (gpumux.Source, error) {
	file, values := names.CutValues(name)
	key, err := s.Key(file)
	base, put := strings.CutPrefix(key, names.Sources+"/")
	if err != nil || !put || !strings.HasSuffix(base, ".jsonl") {
		return s.IndexSource(ctx, name, indexKey)
	}
	src := gpumux.Source{URL: s.Locate(key), Index: strings.TrimSuffix(key, ".jsonl") + ".index", Hash: strings.TrimSuffix(base, ".jsonl"),
		Values: values}
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
		return src, indexDamaged(src, "it has %d bytes", size)
	}
	tail, err := s.readBytes(ctx, src.Index, size-indexTail, indexTail)
	if err != nil {
		return src, err
	}
	src.Items, src.Bytes = int64(binary.LittleEndian.Uint64(tail)), int64(binary.LittleEndian.Uint64(tail[8:]))
	_, err = s.loadIndex(ctx, src)
	return src, err
}

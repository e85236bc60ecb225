package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/names"
)

// Source is IndexSource, except that a source which PutSource put here is known by its
// index and not read again. Where its index or its size is wrong it is read, and its hash
// must be the one of its name.
func (s *Store) Source(ctx context.Context, name, indexKey string) (contract.Source, error) {
	file, values := names.CutValues(name)
	hash, put := s.putHash(file)
	if !put {
		return s.IndexSource(ctx, name, indexKey)
	}
	src, err := s.known(ctx, hash)
	src.Values = values
	var mistake *SourceError
	if !errors.Is(err, fs.ErrNotExist) && !errors.As(err, &mistake) {
		return src, err
	}
	src, err = s.IndexSource(ctx, name, indexKey)
	if errors.As(err, &mistake) || err == nil && src.Hash != hash[:len(src.Hash)] {
		return src, &SourceError{Name: file, Problem: "the source is damaged: its lines are not those that were put there",
			Hint: "delete it, and give the command again that put it there"}
	}
	src.Hash = hash
	return src, err
}

// known is a source that PutSource put here, as the ends of its index say.
func (s *Store) known(ctx context.Context, hash string) (contract.Source, error) {
	src := contract.Source{URL: s.Locate(names.Sources + "/" + hash + ".jsonl"), Index: names.Sources + "/" + hash + ".index", Hash: hash}
	index, err := s.openAt(ctx, src.Index)
	if err != nil {
		return src, s.blame(ctx, src, src.Index, err)
	}
	tail, err := s.readBytes(ctx, src.Index, max(0, index.size-indexTail), indexTail)
	if err != nil {
		return src, s.blame(ctx, src, src.Index, err)
	}
	if src.Items = int64(binary.LittleEndian.Uint64(tail)); src.Items < 0 || src.Items > index.size/markBytes*widestStride {
		return src, s.damaged(src, src.Index, "its end was changed")
	}
	x, err := s.loadIndex(ctx, src)
	if err != nil {
		return src, err
	}
	lines, err := s.openAt(ctx, src.URL)
	if err != nil {
		return src, s.blame(ctx, src, src.URL, err)
	}
	if src.Bytes = x.end.offset; lines.size != src.Bytes {
		return src, s.damaged(src, src.URL, fmt.Sprintf("it has %d bytes, and had %d", lines.size, src.Bytes))
	}
	return src, nil
}

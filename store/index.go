package store

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/gpumux/gpumux"
)

// The index of a source, all numbers little-endian:
//
//	magic "gpumuxi" 0x01 | stride u64 | byte offset u64 of item 0, stride, 2·stride … | items u64 | bytes u64 | modified u64 | magic
//
// Bytes is the size of the object that the offsets point into and modified its time in seconds, 0 when it never changes.
// The stride is 128, or less where items are large, so that reaching an item skips at most about a megabyte.
const (
	indexMagic   = "gpumuxi\x01"
	indexHead    = 16
	indexTail    = 32
	widestStride = 128
	// A stride is settled once this many items or bytes were seen.
	sampleItems = 4096
	sampleBytes = 16 << 20
	skipBytes   = 1 << 20
)

// indexWriter writes an index as the items go by. It holds the offsets of the first items until it knows how large items are.
type indexWriter struct {
	w      *bufio.Writer
	stride int64
	early  []int64
	items  int64
}

func newIndexWriter(w io.Writer) *indexWriter { return &indexWriter{w: bufio.NewWriter(w)} }

// mark takes the byte offset of the next item. The writer keeps its first error for finish.
func (x *indexWriter) mark(offset int64) {
	x.items++
	if x.stride > 0 {
		if (x.items-1)%x.stride == 0 {
			x.writeNumber(offset)
		}
		return
	}
	x.early = append(x.early, offset)
	if len(x.early) == sampleItems || offset-x.early[0] >= sampleBytes {
		x.settle(offset, max(1, int64(len(x.early))-1))
	}
}

// settle chooses the stride from the first items, which end at a byte offset.
func (x *indexWriter) settle(end, items int64) {
	x.stride = widestStride
	if items > 0 {
		for mean := (end - x.early[0]) / items; x.stride > 1 && x.stride*mean > skipBytes; {
			x.stride /= 2
		}
	}
	x.w.WriteString(indexMagic)
	x.writeNumber(x.stride)
	for i := int64(0); i < int64(len(x.early)); i += x.stride {
		x.writeNumber(x.early[i])
	}
	x.early = nil
}

// finish ends the index of an object of so many bytes. Modified is 0 for an object that never changes.
func (x *indexWriter) finish(bytes, modified int64) error {
	if x.stride == 0 {
		x.settle(bytes, int64(len(x.early)))
	}
	for _, n := range []int64{x.items, bytes, modified} {
		x.writeNumber(n)
	}
	x.w.WriteString(indexMagic)
	return x.w.Flush()
}

func (x *indexWriter) writeNumber(n int64) {
	x.w.Write(binary.LittleEndian.AppendUint64(nil, uint64(n)))
}

// indexInfo is what the two ends of an index say.
type indexInfo struct{ stride, items, bytes, modified int64 }

// loadIndex reads the ends of a source's index, once per source.
func (s *Store) loadIndex(ctx context.Context, src gpumux.Source) (indexInfo, error) {
	s.mu.Lock()
	x, known := s.indexes[src]
	s.mu.Unlock()
	if known {
		return x, nil
	}
	head, err := s.readBytes(ctx, src.Index, 0, indexHead)
	if err != nil {
		return indexInfo{}, fmt.Errorf("index %s of %s: %w", src.Index, src.URL, err)
	}
	x.stride = int64(binary.LittleEndian.Uint64(head[8:]))
	if string(head[:8]) != indexMagic || x.stride < 1 || x.stride > widestStride {
		return indexInfo{}, indexDamaged(src, "it does not begin like an index of this version")
	}
	marks := (src.Items + x.stride - 1) / x.stride
	tail, err := s.readBytes(ctx, src.Index, indexHead+8*marks, indexTail)
	if err != nil {
		return indexInfo{}, indexDamaged(src, "it does not end where an index of %d items does: %w", src.Items, err)
	}
	if string(tail[24:]) != indexMagic {
		return indexInfo{}, indexDamaged(src, "it does not end where an index of %d items does", src.Items)
	}
	for i, to := range []*int64{&x.items, &x.bytes, &x.modified} {
		*to = int64(binary.LittleEndian.Uint64(tail[8*i:]))
	}
	if x.items != src.Items {
		return indexInfo{}, indexDamaged(src, "it is of %d items, not %d", x.items, src.Items)
	}
	const kept = 256
	s.mu.Lock()
	if len(s.indexes) >= kept {
		clear(s.indexes)
	}
	s.indexes[src] = x
	s.mu.Unlock()
	return x, nil
}

// forgetIndex drops what is known of a source's index.
func (s *Store) forgetIndex(src gpumux.Source) {
	s.mu.Lock()
	delete(s.indexes, src)
	s.mu.Unlock()
}

// readMarks reads the offsets of the items from start to end: one per stride, and where the last stride ends. The first offset is
// that of the item first, which is start or a little before.
func (s *Store) readMarks(ctx context.Context, src gpumux.Source, x indexInfo, start, end int64) (marks []int64, first int64, err error) {
	low, high := start/x.stride, (end+x.stride-1)/x.stride
	all := (x.items + x.stride - 1) / x.stride
	data, err := s.readBytes(ctx, src.Index, indexHead+8*low, 8*(min(high+1, all)-low))
	if err != nil {
		return nil, 0, fmt.Errorf("index %s of %s: %w", src.Index, src.URL, err)
	}
	for ; len(data) > 0; data = data[8:] {
		marks = append(marks, int64(binary.LittleEndian.Uint64(data)))
	}
	if high >= all {
		marks = append(marks, x.bytes)
	}
	from, to := marks[0], marks[len(marks)-1]
	if from < 0 || to <= from || to > x.bytes || !slices.IsSorted(marks) {
		return nil, 0, indexDamaged(src, "items %d-%d would be bytes %d-%d of %d", start, end-1, from, to, x.bytes)
	}
	return marks, low * x.stride, nil
}

// readBytes reads exactly length bytes of an object.
func (s *Store) readBytes(ctx context.Context, name string, offset, length int64) ([]byte, error) {
	o, err := s.open(ctx, name, offset, length)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	data := make([]byte, length)
	if n, err := io.ReadFull(o, data); err != nil {
		return nil, fmt.Errorf("read %s: %d of %d bytes from byte %d: %w", o.url, n, length, offset, err)
	}
	return data, nil
}

func indexDamaged(src gpumux.Source, format string, args ...any) error {
	return fmt.Errorf("index %s of %s is damaged: %w; start the map anew to index the source again",
		src.Index, src.URL, fmt.Errorf(format, args...))
}

package items

import (
	"bufio"
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"
	"slices"

	"github.com/gpumux/gpumux/internal/objects"
)

// The index of a source, all numbers little-endian:
//
//	magic "gpumuxi" 0x02 | stride u64 | marks of item 0, stride, 2·stride … and of the source's end | items u64 | check u64 | magic
//
// A mark is the byte offset u64 | CRC-32C of all bytes before it u32 | CRC-32C of the
// mark's number u64 and what the mark says u32. So two neighbours tell whether the bytes
// between them are those that were indexed, and a mark that was changed or moved is
// noticed. The check is the CRC-32C of stride and items. The stride is 128, or less where
// items are large, so that reaching an item skips at most about a megabyte.
const (
	indexMagic = "gpumuxi\x02"
	indexHead  = 16
	markBytes  = 16
	indexTail  = 24
	maxStride  = 128
	// A stride is settled once this many items or bytes were seen.
	sampleItems = 4096
	sampleBytes = 16 << 20
	skipBytes   = 1 << 20
)

// position is a byte offset in a source, with the CRC-32C of all bytes before it.
type position struct {
	offset int64
	sum    uint32
}

func (p *position) pass(data []byte) {
	p.offset += int64(len(data))
	p.sum = crc32.Update(p.sum, objects.Castagnoli, data)
}

func (p position) appendMark(b []byte, number int64) []byte {
	begin := len(b)
	b = binary.LittleEndian.AppendUint64(b, uint64(p.offset))
	b = binary.LittleEndian.AppendUint32(b, p.sum)
	sum := crc32.Update(checkOf(number), objects.Castagnoli, b[begin:])
	return binary.LittleEndian.AppendUint32(b, sum)
}

// parseMark is false for a mark that was changed, or stands in the place of another.
func parseMark(mark []byte, number int64) (p position, ok bool) {
	p.offset, p.sum = int64(binary.LittleEndian.Uint64(mark)), binary.LittleEndian.Uint32(mark[8:])
	sum := crc32.Update(checkOf(number), objects.Castagnoli, mark[:12])
	return p, sum == binary.LittleEndian.Uint32(mark[12:])
}

func checkOf(numbers ...int64) (sum uint32) {
	var b [8]byte
	for _, n := range numbers {
		binary.LittleEndian.PutUint64(b[:], uint64(n))
		sum = crc32.Update(sum, objects.Castagnoli, b[:])
	}
	return sum
}

// indexWriter holds the first marks of an index until it knows how large items are.
type indexWriter struct {
	w      *bufio.Writer
	stride int64
	early  []position
	items  int64
	marks  int64
	b      []byte
}

func newIndexWriter(w io.Writer) *indexWriter { return &indexWriter{w: bufio.NewWriter(w)} }

// mark takes the position of the next item. The writer keeps its first error for finish.
func (x *indexWriter) mark(at position) {
	due := x.stride > 0 && x.items%x.stride == 0
	x.items++
	if due {
		x.write(at)
	}
	if x.stride > 0 {
		return
	}
	x.early = append(x.early, at)
	if len(x.early) == sampleItems || at.offset-x.early[0].offset >= sampleBytes {
		x.settle(at.offset, max(1, int64(len(x.early))-1))
	}
}

// settle chooses the stride from the first items, which end at a byte offset.
func (x *indexWriter) settle(end, items int64) {
	x.stride = maxStride
	if items > 0 {
		for mean := (end - x.early[0].offset) / items; x.stride > 1 && x.stride*mean > skipBytes; {
			x.stride /= 2
		}
	}
	x.w.WriteString(indexMagic)
	x.writeNumber(x.stride)
	for i := int64(0); i < int64(len(x.early)); i += x.stride {
		x.write(x.early[i])
	}
	x.early = nil
}

func (x *indexWriter) write(at position) {
	x.b = at.appendMark(x.b[:0], x.marks)
	x.w.Write(x.b)
	x.marks++
}

// finish ends the index of a source that ends there.
func (x *indexWriter) finish(end position) error {
	if x.stride == 0 {
		x.settle(end.offset, int64(len(x.early)))
	}
	x.write(end)
	x.writeNumber(x.items)
	x.writeNumber(int64(checkOf(x.stride, x.items)))
	x.w.WriteString(indexMagic)
	return x.w.Flush()
}

func (x *indexWriter) writeNumber(n int64) {
	x.w.Write(binary.LittleEndian.AppendUint64(nil, uint64(n)))
}

var errNoIndex = objects.Damaged("it is no index of this version")

// stride reads how many items of a source lie between two marks of its index.
func (s *Sources) stride(ctx context.Context, index string) (int64, error) {
	head, err := s.in.ReadExactly(ctx, index, 0, indexHead)
	if err != nil {
		return 0, err
	}
	stride := int64(binary.LittleEndian.Uint64(head[8:]))
	if string(head[:8]) != indexMagic || stride < 1 || stride > maxStride {
		return 0, errNoIndex
	}
	return stride, nil
}

func (s *Sources) indexEnd(ctx context.Context, index string) (items, bytes int64, err error) {
	stride, err := s.stride(ctx, index)
	if err != nil {
		return 0, 0, err
	}
	size, err := s.in.Size(ctx, index)
	if err != nil {
		return 0, 0, err
	}
	end, err := s.in.ReadExactly(ctx, index, max(0, size-markBytes-indexTail), markBytes+indexTail)
	if err != nil {
		return 0, 0, err
	}
	at, ok := parseMark(end, (size-indexHead-indexTail)/markBytes-1)
	items = int64(binary.LittleEndian.Uint64(end[markBytes:]))
	tail := binary.LittleEndian.AppendUint64(nil, uint64(items))
	tail = binary.LittleEndian.AppendUint64(tail, uint64(checkOf(stride, items)))
	if !ok || string(end[markBytes:]) != string(tail)+indexMagic {
		return 0, 0, errNoIndex
	}
	return items, at.offset, nil
}

func (s *Sources) readMarks(ctx context.Context, index string, low, high int64) (marks []position, err error) {
	data, err := s.in.ReadExactly(ctx, index, indexHead+markBytes*low, markBytes*(high+1-low))
	if err != nil {
		return nil, err
	}
	for mark := range slices.Chunk(data, markBytes) {
		number := low + int64(len(marks))
		at, ok := parseMark(mark, number)
		if !ok || at.offset < 0 || len(marks) > 0 && at.offset <= marks[len(marks)-1].offset {
			return nil, objects.Damaged("its mark %d was changed", number)
		}
		marks = append(marks, at)
	}
	return marks, nil
}

package columns

import (
	"encoding/binary"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// build makes an Arrow array of the cells of a column. Data of arrays is copied once.
func (c column) build(cells []cell) arrow.Array {
	switch c.kind {
	case arrayKind:
		return c.buildArrays(cells)
	case listKind:
		return c.buildLists(cells)
	}
	b := array.NewBuilder(memory.DefaultAllocator, c.dataType())
	defer b.Release()
	b.Reserve(len(cells))
	for _, x := range cells {
		switch to := b.(type) {
		case *array.BooleanBuilder:
			appendTo(x, to, x.whole != 0)
		case *array.Int64Builder:
			appendTo(x, to, x.whole)
		case *array.Float64Builder:
			appendTo(x, to, x.float)
		case *array.StringBuilder:
			if x.kind == nullKind {
				to.AppendNull()
			} else {
				to.Append(c.textFor(x))
			}
		}
	}
	return b.NewArray()
}

func appendTo[T any](x cell, to interface {
	Append(T)
	AppendNull()
}, v T) {
	if x.kind == nullKind {
		to.AppendNull()
	} else {
		to.Append(v)
	}
}

// buildArrays makes lists of fixed size, one in the other for each dimension.
func (c column) buildArrays(cells []cell) arrow.Array {
	count := 1
	for _, n := range c.like.Shape {
		count *= n
	}
	data := make([]byte, 0, len(cells)*count*c.width())
	valid, nulls := make([]byte, len(cells)), 0
	for i, x := range cells {
		if x.kind == nullKind {
			nulls++
			data = data[:len(data)+count*c.width()] // zeros
			continue
		}
		valid[i] = 1
		data = append(data, c.numbersFor(x)...)
	}
	inside := c.leaves(data, len(cells)*count)
	for dim := len(c.like.Shape) - 1; dim >= 0; dim-- {
		t := arrow.FixedSizeListOfField(int32(c.like.Shape[dim]), element(inside.DataType()))
		count /= c.like.Shape[dim]
		validity, missing := (*memory.Buffer)(nil), 0
		if dim == 0 && nulls > 0 {
			validity, missing = memory.NewBufferBytes(bits(valid)), nulls
		}
		inside = array.NewData(t, len(cells)*count, []*memory.Buffer{validity}, []arrow.ArrayData{inside}, missing, 0)
	}
	return array.MakeFromData(inside)
}

// buildLists makes lists of different lengths.
func (c column) buildLists(cells []cell) arrow.Array {
	var data []byte
	offsets := make([]byte, 4, 4*len(cells)+4)
	valid, nulls := make([]byte, len(cells)), 0
	for i, x := range cells {
		if x.kind == nullKind {
			nulls++
		} else {
			valid[i] = 1
			data = append(data, c.numbersFor(x)...)
		}
		offsets = binary.LittleEndian.AppendUint32(offsets, uint32(len(data)/c.width()))
	}
	inside := c.leaves(data, len(data)/c.width())
	buffers := []*memory.Buffer{memory.NewBufferBytes(bits(valid)), memory.NewBufferBytes(offsets)}
	return array.MakeFromData(array.NewData(c.dataType(), len(cells), buffers, []arrow.ArrayData{inside}, nulls, 0))
}

// leaves are the numbers of arrays.
func (c column) leaves(data []byte, count int) arrow.ArrayData {
	if c.like.Type == 'b' {
		data = bits(data)
	}
	return array.NewData(c.leaf(), count, []*memory.Buffer{nil, memory.NewBufferBytes(data)}, nil, 0, 0)
}

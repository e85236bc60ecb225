package columns

import (
	"encoding/binary"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

func (c column) build(cells []cell, t arrow.DataType) arrow.Array {
	if c.kind == arrayKind || c.kind == listKind {
		return c.buildLists(cells, t)
	}
	b := array.NewBuilder(memory.DefaultAllocator, t)
	defer b.Release()
	b.Reserve(len(cells))
	for _, x := range cells {
		if x.kind == nullKind || x.has&nan != 0 && arrow.IsInteger(t.ID()) {
			b.AppendNull()
			continue
		}
		switch to := b.(type) {
		case *array.BooleanBuilder:
			to.Append(x.whole != 0)
		case *array.Int64Builder:
			to.Append(x.whole)
		case *array.Uint64Builder:
			to.Append(uint64(x.whole))
		case *array.Float64Builder:
			to.Append(x.float)
		case *array.StringBuilder:
			to.Append(c.textFor(x))
		}
	}
	return b.NewArray()
}

// buildLists makes lists: of a fixed size with zeros for those that are null, or of
// different lengths. Those inside, one for each further dimension, have a fixed size.
func (c column) buildLists(cells []cell, t arrow.DataType) arrow.Array {
	fixed, _ := t.(*arrow.FixedSizeListType)
	row := c.form.Size
	for _, n := range c.form.Shape {
		row *= n
	}
	data := make([]byte, 0, len(cells)*row)
	count, nulls := 0, 0
	valid, offsets := make([]byte, len(cells)), make([]byte, 4, 4*len(cells)+4)
	for i, x := range cells {
		switch {
		case x.kind == arrayKind:
			if valid[i] = 1; x.array.Type == 'i' && c.form.Type == 'f' {
				x.array = widened(x.array)
			}
			data = append(data, x.array.Data...)
			count += x.array.Shape[0]
		case x.kind == nullKind:
			nulls++
			if fixed != nil {
				data = append(data, make([]byte, row)...)
				count += c.form.Shape[0]
			}
		default:
			valid[i] = 1
		}
		offsets = binary.LittleEndian.AppendUint32(offsets, uint32(count))
	}
	buffers := []*memory.Buffer{memory.NewBufferBytes(bits(valid)), memory.NewBufferBytes(offsets)}
	if fixed != nil {
		buffers = buffers[:1]
	}
	return array.MakeFromData(array.NewData(t, len(cells), buffers, []arrow.ArrayData{c.inside(data, count, c.form.Shape[1:])}, nulls, 0))
}

// inside are so many elements of lists.
func (c column) inside(data []byte, count int, shape []int) arrow.ArrayData {
	if len(shape) > 0 {
		within := c.inside(data, count*shape[0], shape[1:])
		return array.NewData(c.inner(shape), count, []*memory.Buffer{nil}, []arrow.ArrayData{within}, 0, 0)
	}
	if c.form.Type == 'b' {
		data = bits(data)
	}
	return array.NewData(c.leaf(), count, []*memory.Buffer{nil, memory.NewBufferBytes(data)}, nil, 0, 0)
}

package columns

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/gpumux/gpumux/internal/arrays"
	"github.com/gpumux/gpumux/internal/text"
)

// column is the type of all cells of a column.
type column struct {
	name string
	kind kind
	// form is that of arrays, without data; loose is as that of value.array.
	form  arrays.Array
	loose bool
	has   traits
}

// joined is the column that can also hold a cell.
func (c column) joined(x cell) column {
	c.has |= x.has
	switch {
	case x.kind == nullKind || x.kind == c.kind && x.kind != arrayKind:
	case c.kind == nullKind:
		c.kind, c.form, c.loose = x.kind, x.array, x.loose
		c.form.Data = nil
	case c.kind == emptyKind && x.kind == arrayKind && len(x.array.Shape) == 1:
		c.kind, c.form, c.loose = listKind, x.array, x.loose
		c.form.Data = nil
	case (c.kind == arrayKind || c.kind == listKind) && len(c.form.Shape) == 1 && x.kind == emptyKind:
		c.kind = listKind
	case (c.kind == arrayKind || c.kind == listKind) && x.kind == arrayKind:
		c.join(x)
	default:
		c.kind = otherKind
	}
	return c
}

func (c column) same(d column) bool {
	return c.kind == d.kind && (c.kind != numberKind || c.number() == d.number()) && c.form.Type == d.form.Type && slices.Equal(c.form.Shape, d.form.Shape)
}

// number is the type that holds all numbers of the column as they are: but for NaN,
// which is null beside whole numbers that no float holds.
func (c column) number() arrow.DataType {
	switch floats := c.has & (nan | broken); {
	case floats != 0 && c.has&wide == 0:
		return arrow.PrimitiveTypes.Float64
	case floats&broken != 0, c.has&negative != 0 && c.has&beyond != 0:
		return arrow.BinaryTypes.String
	case c.has&beyond != 0:
		return arrow.PrimitiveTypes.Uint64
	}
	return arrow.PrimitiveTypes.Int64
}

// join takes in another array.
func (c *column) join(x cell) {
	if c.loose && x.loose && c.form.Type != x.array.Type && c.has&wide == 0 {
		c.form.Type = 'f'
	} else if c.form.Type != x.array.Type || c.form.Size != x.array.Size {
		c.kind = otherKind
		return
	}
	if !slices.Equal(c.form.Shape, x.array.Shape) {
		c.kind = listKind
		if len(c.form.Shape) != 1 || len(x.array.Shape) != 1 {
			c.kind = otherKind
		}
	}
}

// numbersOf are the types of arrays.
var numbersOf = map[[2]byte]arrow.DataType{
	{'b', 1}: arrow.FixedWidthTypes.Boolean,
	{'i', 1}: arrow.PrimitiveTypes.Int8, {'i', 2}: arrow.PrimitiveTypes.Int16, {'i', 4}: arrow.PrimitiveTypes.Int32,
	{'i', 8}: arrow.PrimitiveTypes.Int64, {'u', 1}: arrow.PrimitiveTypes.Uint8, {'u', 2}: arrow.PrimitiveTypes.Uint16,
	{'u', 4}: arrow.PrimitiveTypes.Uint32, {'u', 8}: arrow.PrimitiveTypes.Uint64,
	{'f', 4}: arrow.PrimitiveTypes.Float32, {'f', 8}: arrow.PrimitiveTypes.Float64,
}

// leaf is Arrow's type of the numbers of the column's arrays.
func (c column) leaf() arrow.DataType { return numbersOf[[2]byte{c.form.Type, byte(c.form.Size)}] }

func (c column) dataType() arrow.DataType {
	switch c.kind {
	case truthKind:
		return arrow.FixedWidthTypes.Boolean
	case numberKind:
		return c.number()
	case listKind:
		return arrow.ListOfField(element(c.leaf()))
	case arrayKind:
		return c.inner(c.form.Shape)
	}
	return arrow.BinaryTypes.String
}

// inner is the type of arrays of a shape.
func (c column) inner(shape []int) arrow.DataType {
	t := c.leaf()
	for _, n := range slices.Backward(shape) {
		t = arrow.FixedSizeListOfField(int32(n), element(t))
	}
	return t
}

// element is the field of a list's elements, named as in Parquet.
func element(t arrow.DataType) arrow.Field { return arrow.Field{Name: "element", Type: t} }

// bits packs truths of a byte each.
func bits(data []byte) []byte {
	packed := make([]byte, (len(data)+7)/8)
	for i, b := range data {
		if b != 0 {
			packed[i/8] |= 1 << (i % 8)
		}
	}
	return packed
}

// textFor is a cell of a column of text.
func (c column) textFor(x cell) string {
	if c.kind == textKind {
		return text.Unquoted(x.value.text)
	}
	return string(text.Unescaped(bytes.TrimSpace(x.value.plain())))
}

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

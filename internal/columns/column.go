package columns

import (
	"bytes"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

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

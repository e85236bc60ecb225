package columns

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/gpumux/gpumux/internal/arrays"
	"github.com/gpumux/gpumux/internal/results"
	"github.com/gpumux/gpumux/internal/text"
)

// guess is what the first cells of a column say of its type.
type guess struct {
	kind kind
	// form is that of arrays, without data. Loose: whole numbers may become floats.
	form  arrays.Array
	loose bool
	has   traits
}

// joined is the guess with another cell.
func (g guess) joined(x cell) guess {
	g.has |= x.has
	switch {
	case x.kind == nullKind || x.kind == g.kind && x.kind != arrayKind:
	case g.kind == nullKind:
		g.kind, g.form, g.loose = x.kind, x.array, x.loose
	case g.kind == emptyKind && x.kind == arrayKind && len(x.array.Shape) == 1:
		g.kind, g.form, g.loose = listKind, x.array, x.loose
	case (g.kind == arrayKind || g.kind == listKind) && len(g.form.Shape) == 1 && x.kind == emptyKind:
		g.kind = listKind
	case (g.kind == arrayKind || g.kind == listKind) && x.kind == arrayKind:
		g.join(x)
	default:
		g.kind = otherKind
	}
	g.form.Data = nil
	return g
}

// number is the type that holds all numbers of the column as they are.
func (g guess) number() arrow.DataType {
	switch {
	case g.has&broken != 0 && g.has&wide == 0:
		return arrow.PrimitiveTypes.Float64
	case g.has&broken != 0:
		return arrow.BinaryTypes.String
	}
	return arrow.PrimitiveTypes.Int64
}

// join takes in another array.
func (g *guess) join(x cell) {
	if g.loose && x.loose && g.form.Type != x.array.Type && g.has&wide == 0 {
		g.form.Type = 'f'
	} else if g.form.Type != x.array.Type || g.form.Size != x.array.Size {
		g.kind = otherKind
		return
	}
	if !slices.Equal(g.form.Shape, x.array.Shape) {
		g.kind = listKind
		if len(g.form.Shape) != 1 || len(x.array.Shape) != 1 {
			g.kind = otherKind
		}
	}
}

// column is the column of that name. Text but of texts alone is JSON.
func (g guess) column(name string) column {
	c := columnOf(arrow.Field{Name: name, Type: g.dataType(), Nullable: true})
	c.asJSON = g.kind != textKind && c.Type.ID() == arrow.STRING
	return c
}

// numbersOf are the types of arrays.
var numbersOf = map[[2]byte]arrow.DataType{
	{'b', 1}: arrow.FixedWidthTypes.Boolean,
	{'i', 1}: arrow.PrimitiveTypes.Int8, {'i', 2}: arrow.PrimitiveTypes.Int16, {'i', 4}: arrow.PrimitiveTypes.Int32,
	{'i', 8}: arrow.PrimitiveTypes.Int64, {'u', 1}: arrow.PrimitiveTypes.Uint8, {'u', 2}: arrow.PrimitiveTypes.Uint16,
	{'u', 4}: arrow.PrimitiveTypes.Uint32, {'u', 8}: arrow.PrimitiveTypes.Uint64,
	{'f', 4}: arrow.PrimitiveTypes.Float32, {'f', 8}: arrow.PrimitiveTypes.Float64,
}

// leaf is Arrow's type of the numbers of arrays of a form.
func leaf(form arrays.Array) arrow.DataType { return numbersOf[[2]byte{form.Type, byte(form.Size)}] }

func (g guess) dataType() arrow.DataType {
	switch g.kind {
	case truthKind:
		return arrow.FixedWidthTypes.Boolean
	case numberKind:
		return g.number()
	case listKind:
		return arrow.ListOfField(element(leaf(g.form)))
	case arrayKind:
		return inner(g.form, g.form.Shape)
	}
	return arrow.BinaryTypes.String
}

// inner is the type of arrays of a form, of the dimensions of shape.
func inner(form arrays.Array, shape []int) arrow.DataType {
	t := leaf(form)
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

// column has a field of a type.
type column struct {
	arrow.Field
	// kind and form are those of arrays that may stay bytes; other types are otherKind.
	kind kind
	form arrays.Array
	// asJSON says that its texts are values of any type.
	asJSON bool
}

func columnOf(f arrow.Field) column {
	c, kind, leaf := column{Field: f, kind: otherKind}, arrayKind, f.Type
	if list, ok := leaf.(*arrow.ListType); ok {
		kind, leaf, c.form.Shape = listKind, list.Elem(), []int{0}
	}
	for list, ok := leaf.(*arrow.FixedSizeListType); ok && kind == arrayKind; list, ok = leaf.(*arrow.FixedSizeListType) {
		leaf, c.form.Shape = list.Elem(), append(c.form.Shape, int(list.Len()))
	}
	for form, t := range numbersOf {
		if c.form.Shape != nil && arrow.TypeEqual(t, leaf) {
			c.kind, c.form.Type, c.form.Size = kind, form[0], int(form[1])
		}
	}
	return c
}

// takes reports whether a cell is one of the column's arrays.
func (c column) takes(x cell) bool {
	if c.kind == listKind && x.kind == emptyKind {
		return true
	}
	return x.kind == arrayKind && x.array.Data != nil && x.array.Type == c.form.Type && x.array.Size == c.form.Size &&
		(slices.Equal(x.array.Shape, c.form.Shape) || c.kind == listKind && len(x.array.Shape) == 1)
}

// json is a cell for Arrow, or null.
func (c column) json(x cell) []byte {
	switch {
	case x.kind == nullKind:
		return []byte("null")
	case c.asJSON:
		return results.AppendString(nil, string(text.Unescaped(bytes.TrimSpace(x.value.plain()))))
	}
	return bytes.TrimSpace(x.value.plain())
}

// build makes an array of cells that fit: bytewise if it takes all of them.
func (c column) build(cells []cell, t arrow.DataType, bytewise bool) (arrow.Array, error) {
	if bytewise {
		return c.buildLists(cells, t), nil
	}
	list := make([][]byte, len(cells))
	for row, x := range cells {
		list[row] = c.json(x)
	}
	text := slices.Concat([]byte{'['}, bytes.Join(list, []byte{','}), []byte{']'})
	all, _, err := array.FromJSON(memory.DefaultAllocator, t, bytes.NewReader(text))
	return all, err
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
		switch valid[i] = 1; {
		case x.kind == arrayKind:
			data, count = append(data, x.array.Data...), count+x.array.Shape[0]
		case x.kind == nullKind:
			valid[i], nulls = 0, nulls+1
			if fixed != nil {
				data, count = append(data, make([]byte, row)...), count+c.form.Shape[0]
			}
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
		return array.NewData(inner(c.form, shape), count, []*memory.Buffer{nil}, []arrow.ArrayData{within}, 0, 0)
	}
	if c.form.Type == 'b' {
		data = bits(data)
	}
	return array.NewData(leaf(c.form), count, []*memory.Buffer{nil, memory.NewBufferBytes(data)}, nil, 0, 0)
}

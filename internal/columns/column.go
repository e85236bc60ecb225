package columns

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/arrays"
	"github.com/gpumux/gpumux/internal/results"
	"github.com/gpumux/gpumux/internal/text"
)

// guess is what the first cells of a column say of its type.
type guess struct {
	kind kind
	// form is that of arrays, without data.
	form arrays.Array
	traits
}

// joined is the guess with another cell.
func (g guess) joined(x *cell) guess {
	g.wide, g.broken = g.wide || x.wide, g.broken || x.broken
	if (g.kind == nullKind || g.kind == emptyKind) && x.array != nil {
		g.form, g.loose = *x.array, x.loose
	}
	lists := g.kind == arrayKind || g.kind == listKind
	switch {
	case x.kind == nullKind || x.kind == g.kind && x.kind != arrayKind:
	case g.kind == nullKind:
		g.kind = x.kind
	case g.kind == emptyKind && x.kind == arrayKind && len(x.array.Shape) == 1:
		g.kind = listKind
	case lists && len(g.form.Shape) == 1 && x.kind == emptyKind:
		g.kind = listKind
	case lists && x.kind == arrayKind && g.form.Size == x.array.Size && (g.form.Type == x.array.Type || g.loose && x.loose && !g.wide) &&
		(slices.Equal(g.form.Shape, x.array.Shape) || len(g.form.Shape) == 1 && len(x.array.Shape) == 1):
		if g.form.Type != x.array.Type {
			g.form.Type = 'f'
		}
		if !slices.Equal(g.form.Shape, x.array.Shape) {
			g.kind = listKind
		}
	default:
		g.kind = otherKind
	}
	g.form.Data = nil
	return g
}

// number is the type that holds all numbers of the column as they are.
func (g guess) number() arrow.DataType {
	switch {
	case g.broken && g.wide:
		return arrow.BinaryTypes.String
	case g.broken:
		return arrow.PrimitiveTypes.Float64
	}
	return arrow.PrimitiveTypes.Int64
}

// column is the column of that name. Text but of texts alone is JSON.
func (g guess) column(name string) column {
	f := arrow.Field{Name: name, Type: g.dataType(), Nullable: true}
	if g.kind != textKind && f.Type.ID() == arrow.STRING {
		f.Metadata = asJSON
	}
	c := columnOf(f)
	c.guess = &g
	return c
}

// asJSON says that the texts of a column are values of any type, also to a schema.
var asJSON = arrow.NewMetadata([]string{"gpumux"}, []string{"json"})

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
		t := leaf(g.form)
		for _, n := range slices.Backward(g.form.Shape) {
			t = arrow.FixedSizeListOfField(int32(n), element(t))
		}
		return t
	}
	return arrow.BinaryTypes.String
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
	// asJSON is as the variable, guess nil where the column is declared.
	asJSON bool
	guess  *guess
}

func columnOf(f arrow.Field) column {
	c, kind, leaf := column{Field: f, kind: otherKind, asJSON: f.HasMetadata() && f.Metadata.FindKey("gpumux") >= 0}, arrayKind, f.Type
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
func (c column) takes(x *cell) bool {
	return x != nil && (c.kind == listKind && x.kind == emptyKind ||
		x.kind == arrayKind && x.array.Data != nil && x.array.Type == c.form.Type && x.array.Size == c.form.Size &&
			(slices.Equal(x.array.Shape, c.form.Shape) || c.kind == listKind && len(x.array.Shape) == 1))
}

// json is a cell for Arrow, or null.
func (c column) json(x *cell) []byte {
	switch {
	case x == nil || x.kind == nullKind:
		return []byte("null")
	case c.asJSON:
		return results.AppendString(nil, string(text.Unescaped(bytes.TrimSpace(x.value.plain()))))
	}
	return bytes.TrimSpace(x.value.plain())
}

// build makes an array of cells that fit: bytewise if it takes all of them.
func (c column) build(cells []*cell, t arrow.DataType, bytewise bool) (all arrow.Array, err error) {
	if bytewise {
		return c.buildLists(cells, t), nil
	}
	defer func() {
		if p := recover(); p != nil { // decimals from a text such as Inf
			err = fmt.Errorf("%v", p)
		}
	}()
	list := []byte{'['}
	for _, x := range cells {
		list = append(append(list, c.json(x)...), ',')
	}
	list = append(bytes.TrimSuffix(list, []byte{','}), ']')
	all, _, err = array.FromJSON(memory.DefaultAllocator, t, bytes.NewReader(list))
	return all, err
}

// buildLists makes lists of different lengths, of bytes. Those inside, one for each
// further dimension, have a fixed size.
func (c column) buildLists(cells []*cell, t arrow.DataType) arrow.Array {
	var data []byte
	count, nulls := 0, 0
	valid, offsets := make([]byte, len(cells)), make([]byte, 4, 4*len(cells)+4)
	for i, x := range cells {
		switch valid[i] = 1; {
		case x == nil || x.kind == nullKind:
			valid[i], nulls = 0, nulls+1
		case x.kind == arrayKind:
			data, count = append(data, x.array.Data...), count+x.array.Shape[0]
		}
		offsets = binary.LittleEndian.AppendUint32(offsets, uint32(count))
	}
	buffers := []*memory.Buffer{memory.NewBufferBytes(bits(valid)), memory.NewBufferBytes(offsets)}
	elements := c.inside(t.(*arrow.ListType).Elem(), data, count)
	return array.MakeFromData(array.NewData(t, len(cells), buffers, []arrow.ArrayData{elements}, nulls, 0))
}

// inside are so many elements of lists, of a type.
func (c column) inside(t arrow.DataType, data []byte, count int) arrow.ArrayData {
	if list, ok := t.(*arrow.FixedSizeListType); ok {
		within := c.inside(list.Elem(), data, count*int(list.Len()))
		return array.NewData(t, count, []*memory.Buffer{nil}, []arrow.ArrayData{within}, 0, 0)
	}
	if c.form.Type == 'b' {
		data = bits(data)
	}
	return array.NewData(t, count, []*memory.Buffer{nil, memory.NewBufferBytes(data)}, nil, 0, 0)
}

// Schema declares the columns of values.
type Schema []arrow.Field

// ReadSchema returns the columns of a Parquet file, but for the index and the fault of
// results. It closes the file. One that is damaged, or that could not be written, is a
// *gpumux.SourceError.
func ReadSchema(from *os.File, name string) (Schema, error) {
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return nil, err
	}
	file, s := &ranged{from: from, size: info.Size()}, Schema{}
	err = file.blame(context.Background(), name, func() error {
		t, err := openTable(file, true)
		if err == nil {
			_, err = choose(t.names(), nil, name)
		}
		if err != nil {
			return err
		}
		for _, f := range t.Manifest.Fields {
			if t := f.Field.Type; t.ID() != arrow.FIXED_SIZE_LIST && strings.Contains(t.String(), "fixed_size_list") { // pqarrow writes none that is null
				return &gpumux.SourceError{Problem: "column " + f.Field.Name + " is " + named.Replace(t.String()), Hint: "within other types lists may have any length alone"}
			}
			if t, ok := f.Field.Type.(*arrow.DictionaryType); ok {
				f.Field.Type = t.ValueType
			}
			if !slices.Contains([]string{indexColumn, faultColumn, messageColumn}, f.Field.Name) {
				s = append(s, *f.Field)
			}
		}
		_, err = newParquetWriter(io.Discard, listed(arrow.NewSchema(s, nil)))
		return err
	})
	return s, err
}

// fit makes an array of cells. Those that do not fit become null, and misfit hears why.
func (c column) fit(cells []*cell, t arrow.DataType, misfit func(row int, why error) error) (arrow.Array, error) {
	bytewise := c.kind != otherKind
	var failed error
	refuse := func(row int, why error) {
		cells[row], failed = nil, cmp.Or(failed, misfit(row, why))
	}
	for row, x := range cells {
		if c.takes(x) || (x == nil || x.kind == nullKind) && c.Nullable || c.asJSON && c.guess == nil {
			continue
		}
		if err := c.suits(x); err != nil {
			refuse(row, err)
		} else {
			bytewise = false
		}
	}
	all, err := c.build(cells, t, bytewise)
	if err == nil || failed != nil {
		return all, failed
	}
	for row, x := range cells { // Arrow leaves half a value behind an error
		if _, err := c.build(cells[row:row+1], t, false); err != nil {
			refuse(row, unlike(c.Field, c.json(x)))
		}
	}
	all, err = c.build(cells, t, false)
	return all, cmp.Or(failed, err)
}

// suits returns why a cell is none of the column. What the first ones settled is as they
// would have it with this one.
func (c column) suits(x *cell) error {
	if c.guess == nil {
		return suits(c.Field, c.json(x))
	}
	if g := c.guess.joined(cellOf(x.value)); (g.kind == textKind) != (c.guess.kind == textKind) || !arrow.TypeEqual(g.dataType(), c.Type) {
		return unlike(c.Field, x.value.plain())
	}
	return nil
}

func unlike(f arrow.Field, value []byte) error {
	return fmt.Errorf("%s is %s, and is to be %s", f.Name, text.Beginning(value), named.Replace(f.Type.String()))
}

// named takes from the name of a type what means nothing here.
var named = strings.NewReplacer(", nullable", "", " nullable", "")

// suits returns why JSON is no value of a field. The rest is left to Arrow, which takes
// numbers in texts and as truths, lists of any length and unknown fields.
func suits(f arrow.Field, json []byte) (err error) {
	within := func(member arrow.Field, part []byte) bool {
		member.Name, member.Nullable = f.Name+"."+member.Name, member.Nullable && member.Type.ID() != arrow.FIXED_SIZE_LIST
		err = suits(member, part)
		return err == nil
	}
	t, first := f.Type, json[0]
	_, nonFinite := text.NonFinite[string(json)]
	switch {
	case first == 'n' && f.Nullable:
		return nil
	case first == 'n', (t.ID() == arrow.STRUCT) != (first == '{'), arrow.IsListLike(t.ID()) != (first == '['),
		(t.ID() == arrow.BOOL) != (first == 't' || first == 'f'),
		slices.Contains([]arrow.Type{arrow.TIMESTAMP, arrow.DATE32, arrow.TIME32, arrow.TIME64}, t.ID()) && (first != '"' || !bytes.ContainsAny(json[2:], "-:")), first == '"' && nonFinite != (arrow.IsInteger(t.ID()) || arrow.IsFloating(t.ID())):
		return unlike(f, json)
	case first == '{':
		t := t.(*arrow.StructType)
		members := map[string][]byte{}
		text.EachField(json, func(name string, member []byte) bool {
			if _, known := t.FieldByName(name); !known {
				err = fmt.Errorf("%s has a field %q, and is to be %s", f.Name, name, named.Replace(t.String()))
			}
			members[name] = member
			return err == nil
		})
		for _, member := range t.Fields() {
			if err == nil {
				within(member, []byte(cmp.Or(string(members[member.Name]), "null")))
			}
		}
	case first == '[':
		count := 0
		text.EachEntry(json, func(entry []byte) bool { count++; return within(t.(arrow.ListLikeType).ElemField(), entry) })
		if fixed, ok := t.(*arrow.FixedSizeListType); ok && err == nil && count != int(fixed.Len()) {
			return fmt.Errorf("%s has %d elements, and is to be %s", f.Name, count, named.Replace(t.String()))
		}
	}
	return err
}

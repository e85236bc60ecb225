package columns

import (
	"bytes"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/gpumux/gpumux/internal/text"
)

// entries returns the entries of a list as fields without names.
func (v value) entries() (all []field) {
	taken := v.taking(&all)
	text.EachEntry(v.text, func(entry []byte) bool { return taken("", entry) })
	return all
}

// nest adds the members of a cell to the column. Other fields than before, or a member of
// no type, make it a column of JSON.
func (c column) nest(x cell) column {
	found, object := x.value.fields()
	if !object {
		found = x.value.entries()
	}
	first := c.kind != x.kind
	if object && !first && len(found) != len(c.members) {
		return column{name: c.name, kind: otherKind}
	}
	c.kind, c.members = x.kind, slices.Clone(c.members)
	seen := map[string]bool{}
	for _, m := range found {
		at := slices.IndexFunc(c.members, func(in column) bool { return in.name == m.name })
		if at < 0 && (first || !object) {
			at, c.members = len(c.members), append(c.members, column{name: m.name})
		}
		if at < 0 || object && seen[m.name] {
			return column{name: c.name, kind: otherKind}
		}
		seen[m.name] = true
		in := c.members[at].with(cellOf(m.value))
		if in.kind == otherKind || in.kind == numberKind && (in.number() == arrow.BinaryTypes.String || in.has&(nan|wide) == nan|wide) {
			return column{name: c.name, kind: otherKind}
		}
		c.members[at] = in
	}
	return c
}

// untyped reports whether a list inside of a column was always empty.
func (c column) untyped() bool {
	return slices.ContainsFunc(c.members, func(in column) bool { return in.kind == emptyKind || in.untyped() })
}

// insideType is the type of a column in a list or an object, where lists have any length.
func (c column) insideType() arrow.DataType {
	if c.kind != arrayKind {
		return c.dataType()
	}
	t := c.leaf()
	for range c.like.Shape {
		t = arrow.ListOfField(element(t))
	}
	return t
}

// nestedType is the type of lists and objects.
func (c column) nestedType() arrow.DataType {
	var fields []arrow.Field
	for _, in := range c.members {
		fields = append(fields, arrow.Field{Name: in.name, Type: in.insideType(), Nullable: true})
	}
	if c.kind == objectKind {
		return arrow.StructOf(fields...)
	}
	fields[0].Name = "element"
	return arrow.ListOfField(fields[0])
}

// buildNested makes an Arrow array of lists or objects.
func (c column) buildNested(cells []cell, t arrow.DataType) arrow.Array {
	b := array.NewBuilder(memory.DefaultAllocator, t)
	defer b.Release()
	all := make([][]byte, len(cells))
	for i, x := range cells {
		if all[i] = []byte("null"); x.kind != nullKind {
			all[i] = x.value.plain()
		}
	}
	if err := b.UnmarshalJSON(slices.Concat([]byte{'['}, bytes.Join(all, []byte{','}), []byte{']'})); err != nil {
		panic(err) // the type is of these cells
	}
	return b.NewArray()
}

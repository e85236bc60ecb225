package columns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// parquetTable is a Parquet file.
type parquetTable struct {
	*parquet.File
	from *ranged
	// halves are the leaves that are floats of 16 bits, which parquet-go takes for bytes.
	halves map[int]bool
	// widths are the bytes that a value of each leaf takes in memory at least.
	widths []int64
}

func openParquet(file *ranged) (table, error) {
	f, err := parquet.OpenFile(file, file.size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true), parquet.SkipMagicBytes(true),
		parquet.ReadBufferSize(32<<10))
	if err != nil {
		return nil, err
	}
	t := parquetTable{File: f, from: file, halves: map[int]bool{}}
	for _, e := range f.Metadata().Schema {
		if !e.NumChildren.Valid || e.NumChildren.V == 0 {
			_, t.halves[len(t.widths)] = e.LogicalType.Value.(*format.Float16Type)
			t.widths = append(t.widths, max(8, int64(e.TypeLength.V)))
		}
	}
	return t, nil
}

func (t parquetTable) names() (all []string) {
	for _, c := range t.Root().Columns() {
		all = append(all, c.Name())
	}
	return all
}

func (t parquetTable) each(ctx context.Context, at []int, f func(row []byte) error) error {
	keys := keysOf(t.names(), at)
	if err := t.wantColumns(at); err != nil {
		return err
	}
	for _, group := range t.RowGroups() {
		leaves := map[int]*leafReader{}
		var nodes []*node
		for _, i := range at {
			nodes = append(nodes, t.node(t.Root().Columns()[i], 0, 0, func(leaf int) {
				leaves[leaf] = &leafReader{pages: group.ColumnChunks()[leaf].Pages()}
			}))
		}
		err := eachRow(ctx, group.NumRows(), leaves, nodes, keys, f)
		for _, l := range leaves {
			err = errors.Join(err, l.pages.Close())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// wantColumns says where the columns lie. Row groups that need too much memory are
// refused, as their metadata says. Columns with LZ4 are refused: parquet-go takes other
// bytes for the decompressed ones where these are many, and never ends where they are
// damaged.
func (t parquetTable) wantColumns(at []int) error {
	wanted := map[int]bool{}
	for _, i := range at {
		t.node(t.Root().Columns()[i], 0, 0, func(leaf int) { wanted[leaf] = true })
	}
	var all []stretch
	for number, group := range t.Metadata().RowGroups {
		stored, unpacked := int64(0), 0.0
		for leaf, chunk := range group.Columns {
			if data := chunk.MetaData; wanted[leaf] {
				if data.Codec == format.Lz4 || data.Codec == format.Lz4Raw {
					return fmt.Errorf("column %q is compressed with LZ4; write the file with snappy or zstd", strings.Join(data.PathInSchema, "."))
				}
				start := data.DataPageOffset
				if data.DictionaryPageOffset != 0 {
					start = data.DictionaryPageOffset
				}
				all = append(all, stretch{start, start + data.TotalCompressedSize})
				stored += data.TotalCompressedSize
				// Many equal values take few bytes in a page of any kind.
				unpacked += max(float64(data.TotalUncompressedSize), float64(data.NumValues)*float64(t.widths[leaf]))
			}
		}
		if err := tooLarge(fmt.Sprintf("row group %d", number), min(stored, t.from.size), int64(min(unpacked, math.MaxInt64/2))); err != nil {
			return err
		}
	}
	t.from.want(all, len(wanted))
	return nil
}

func eachRow(ctx context.Context, rows int64, leaves map[int]*leafReader, nodes []*node, keys [][]byte, f func([]byte) error) (err error) {
	var row []byte
	values := map[int][]parquet.Value{}
	for range rows {
		for leaf, from := range leaves {
			if values[leaf], err = from.next(); err != nil {
				return err
			}
		}
		row = row[:0]
		for i, n := range nodes {
			row = n.append(append(row, keys[i]...), values)
		}
		if err := f(append(row, '}')); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// leafReader reads the values of one leaf of a row group, row by row.
type leafReader struct {
	pages parquet.Pages
	page  parquet.ValueReader
	// values are read ahead; row is those of the present row.
	values []parquet.Value
	at     int
	row    []parquet.Value
}

// next returns the values of the next row.
func (l *leafReader) next() ([]parquet.Value, error) {
	l.row = l.row[:0]
	for {
		if l.at == len(l.values) {
			if err := l.fill(); err == io.EOF && len(l.row) > 0 {
				return l.row, nil
			} else if err != nil {
				return nil, errors.Join(errors.New("a row group ends before its last row"), err)
			}
		}
		v := l.values[l.at]
		if len(l.row) > 0 && v.RepetitionLevel() == 0 {
			return l.row, nil
		}
		l.row = append(l.row, v)
		l.at++
	}
}

// fill reads more values.
func (l *leafReader) fill() error {
	if l.values == nil {
		l.values = make([]parquet.Value, 4096)
	}
	for l.values, l.at = l.values[:cap(l.values)], 0; ; {
		if l.page == nil {
			page, err := l.pages.ReadPage()
			if err != nil {
				return err
			}
			l.page = page.Values()
		}
		n, err := l.page.ReadValues(l.values)
		if err == io.EOF {
			l.page, err = nil, nil
		}
		if l.values = l.values[:n]; n > 0 || err != nil {
			return err
		}
		l.values = l.values[:cap(l.values)]
	}
}

// node is a part of the schema that is read.
type node struct {
	*parquet.Column
	// defined is the level at which the node is there, repeated the one at which it goes on.
	defined, repeated int
	// leaf is the place of a leaf, or of the first below.
	leaf   int
	fields []*node
	text   func(b []byte, v parquet.Value) []byte
}

func (t parquetTable) node(c *parquet.Column, defined, repeated int, wanted func(leaf int)) *node {
	n := &node{Column: c, defined: defined, repeated: repeated, leaf: int(c.Index())}
	if c.Optional() || c.Repeated() {
		n.defined++
	}
	if c.Repeated() {
		n.repeated++
	}
	if c.Leaf() {
		if n.text = textOf(c.Type()); t.halves[n.leaf] {
			n.text = halfText
		}
		wanted(n.leaf)
		return n
	}
	for _, child := range c.Columns() {
		n.fields = append(n.fields, t.node(child, n.defined, n.repeated, wanted))
	}
	if len(n.fields) > 0 {
		n.leaf = n.fields[0].leaf
	}
	return n
}

// append adds the node's value, of which values has what its leaves hold.
func (n *node) append(b []byte, values map[int][]parquet.Value) []byte {
	switch first := values[n.leaf][0]; {
	case n.Repeated():
		return n.appendList(b, values, n.appendOne)
	case first.DefinitionLevel() < n.defined:
		return append(b, "null"...)
	}
	return n.appendOne(b, values)
}

// appendOne adds the value of a node that is there.
func (n *node) appendOne(b []byte, values map[int][]parquet.Value) []byte {
	if n.Leaf() {
		return n.text(b, values[n.leaf][0])
	}
	if inner := n.list(); inner != nil {
		return inner.appendList(b, values, func(b []byte, values map[int][]parquet.Value) []byte {
			if len(inner.fields) == 1 {
				return inner.fields[0].append(b, values)
			}
			return inner.appendOne(b, values)
		})
	}
	for i, field := range n.fields {
		before := byte(',')
		if i == 0 {
			before = '{'
		}
		b = field.append(append(appendText(append(b, before), field.Name()), ':'), values)
	}
	return append(b, '}')
}

// list is the repeated node inside of one that is marked as a list or as a map, which becomes a list of its pairs, or nil.
func (n *node) list() *node {
	if t := n.Type().LogicalType(); t != nil && len(n.fields) == 1 && n.fields[0].Repeated() {
		switch t.Value.(type) {
		case *format.ListType, *format.MapType:
			return n.fields[0]
		}
	}
	return nil
}

// appendList adds the elements of a repeated node.
func (n *node) appendList(b []byte, values map[int][]parquet.Value, one func([]byte, map[int][]parquet.Value) []byte) []byte {
	b = append(b, '[')
	if values[n.leaf][0].DefinitionLevel() < n.defined {
		return append(b, ']')
	}
	rest := map[int][]parquet.Value{}
	n.eachLeaf(func(leaf int) { rest[leaf] = values[leaf] })
	for first := true; len(rest[n.leaf]) > 0; first = false {
		if !first {
			b = append(b, ',')
		}
		element := map[int][]parquet.Value{}
		for leaf, all := range rest {
			end := 1
			for end < len(all) && all[end].RepetitionLevel() > n.repeated {
				end++
			}
			element[leaf], rest[leaf] = all[:end], all[end:]
		}
		b = one(b, element)
	}
	return append(b, ']')
}

func (n *node) eachLeaf(f func(leaf int)) {
	if n.Leaf() {
		f(n.leaf)
	}
	for _, field := range n.fields {
		field.eachLeaf(f)
	}
}

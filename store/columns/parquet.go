package columns

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/parquet-go/parquet-go"
)

// parquetWriter writes Arrow's batches as row groups of a Parquet file, whose metadata has Arrow's schema: Parquet itself does not know
// lists of fixed size.
type parquetWriter struct {
	to *parquet.GenericWriter[any]
	// coming are the groups that are encoded beside each other, the oldest first.
	coming []chan encoded
}

// encoded is a row group that can be written, or why it cannot.
type encoded struct {
	group *parquet.ConcurrentRowGroupWriter
	err   error
}

// mostComing bounds the memory of groups.
const mostComing = 2

// chunkValues is how many values are handed on at once.
const chunkValues = 1 << 14

func newParquetWriter(out io.Writer, schema *arrow.Schema) (*parquetWriter, error) {
	var described bytes.Buffer
	if err := ipc.NewWriter(&described, ipc.WithSchema(schema)).Close(); err != nil {
		return nil, err
	}
	const end = 8 // of a stream without batches
	metadata := base64.StdEncoding.EncodeToString(described.Bytes()[:described.Len()-end])
	root := ordered{Group: parquet.Group{}}
	for _, f := range schema.Fields() {
		node := nodeOf(f.Type)
		if f.Nullable {
			node = parquet.Optional(node)
		}
		root.Group[f.Name] = node
		root.fields = append(root.fields, parquet.Group{f.Name: node}.Fields()...)
	}
	to := parquet.NewGenericWriter[any](out, parquet.NewSchema("results", root), parquet.KeyValueMetadata("ARROW:schema", metadata),
		parquet.DataPageStatistics(false), parquet.CreatedBy("gpumux", "", ""))
	return &parquetWriter{to: to}, nil
}

// ordered is a group whose fields keep their order.
type ordered struct {
	parquet.Group
	fields []parquet.Field
}

// Fields is parquet.Node's.
func (o ordered) Fields() []parquet.Field { return o.fields }

// nodeOf is Parquet's type for one of Arrow's. Numbers of arrays hardly repeat, so only others are compressed.
func nodeOf(t arrow.DataType) parquet.Node {
	switch t := t.(type) {
	case *arrow.FixedSizeListType:
		return parquet.List(leafOf(t.Elem()))
	case *arrow.ListType:
		return parquet.List(leafOf(t.Elem()))
	}
	node := parquet.Compressed(leafOf(t), &parquet.Snappy)
	if t.ID() == arrow.STRING {
		node = parquet.Encoded(node, &parquet.RLEDictionary)
	}
	return node
}

func leafOf(t arrow.DataType) parquet.Node {
	switch t.ID() {
	case arrow.BOOL:
		return parquet.Leaf(parquet.BooleanType)
	case arrow.INT8, arrow.INT16, arrow.INT32, arrow.INT64:
		return parquet.Int(t.(arrow.FixedWidthDataType).BitWidth())
	case arrow.UINT8, arrow.UINT16, arrow.UINT32, arrow.UINT64:
		return parquet.Uint(t.(arrow.FixedWidthDataType).BitWidth())
	case arrow.FLOAT32:
		return parquet.Leaf(parquet.FloatType)
	case arrow.FLOAT64:
		return parquet.Leaf(parquet.DoubleType)
	case arrow.STRING:
		return parquet.String()
	}
	return nodeOf(t)
}

// Write writes a batch as a row group, as soon as that is encoded.
func (w *parquetWriter) Write(batch arrow.RecordBatch) error {
	done := make(chan encoded, 1)
	group := w.to.BeginRowGroup()
	batch.Retain()
	go func() {
		defer batch.Release()
		var err error
		for i, to := range group.ColumnWriters() {
			if err == nil {
				err = writeColumn(i, to, batch.Column(i), batch.Schema().Field(i).Nullable)
			}
		}
		done <- encoded{group, err}
	}()
	if w.coming = append(w.coming, done); len(w.coming) > mostComing {
		return w.commit()
	}
	return nil
}

// commit writes the oldest group.
func (w *parquetWriter) commit() error {
	first := <-w.coming[0]
	w.coming = w.coming[1:]
	if first.err == nil {
		_, first.err = first.group.Commit()
	}
	return first.err
}

// Close ends the file.
func (w *parquetWriter) Close() error {
	for len(w.coming) > 0 {
		if err := w.commit(); err != nil {
			return err
		}
	}
	return w.to.Close()
}

func writeColumn(column int, to *parquet.ColumnWriter, of arrow.Array, nullable bool) error {
	rows := rowsOf(of)
	var values []parquet.Value
	depth := len(rows.repeats)
	defined := depth
	if nullable {
		defined++
	}
	for row := range of.Len() {
		from, end := rows.bounds(row)
		switch {
		case of.IsNull(row):
			values = append(values, parquet.NullValue().Level(0, 0, column))
		case from == end:
			values = append(values, parquet.NullValue().Level(0, defined-1, column))
		}
		if of.IsValid(row) {
			for i := from; i < end; i++ {
				values = append(values, rows.leaf(i).Level(rows.repeat(i-from), defined, column))
			}
		}
		if len(values) >= chunkValues || row == of.Len()-1 {
			if _, err := to.WriteRowValues(values); err != nil {
				return err
			}
			values = values[:0]
		}
	}
	return nil
}

// rows are the leaves of each row of a column.
type rows struct {
	bounds func(row int) (from, end int)
	leaf   func(i int) parquet.Value
	// repeats are how many leaves a list has at each depth, from the outermost in.
	repeats []int
}

// repeat is Parquet's repetition level of a row's leaf i: at which depth a list goes on.
func (r *rows) repeat(i int) int {
	for depth, n := range r.repeats {
		if i%n == 0 {
			return depth
		}
	}
	return len(r.repeats)
}

func rowsOf(of arrow.Array) *rows {
	r := &rows{bounds: func(row int) (int, int) { return row, row + 1 }}
	if l, ok := of.(*array.List); ok {
		r.bounds = func(row int) (int, int) { from, end := l.ValueOffsets(row); return int(from), int(end) }
		r.repeats = []int{1 << 62}
		of = l.ListValues()
	}
	count := 1
	for l, ok := of.(*array.FixedSizeList); ok; l, ok = of.(*array.FixedSizeList) {
		n := int(l.DataType().(*arrow.FixedSizeListType).Len())
		count *= n
		r.repeats = append(r.repeats, n)
		of = l.ListValues()
	}
	if count > 1 || len(r.repeats) > 0 && r.repeats[0] != 1<<62 {
		r.bounds = func(row int) (int, int) { return row * count, (row + 1) * count }
		for i := len(r.repeats) - 2; i >= 0; i-- {
			r.repeats[i] *= r.repeats[i+1]
		}
	}
	r.leaf = leafFrom(of)
	return r
}

// leafFrom reads the numbers or texts of an array.
func leafFrom(of arrow.Array) func(i int) parquet.Value {
	switch of := of.(type) {
	case *array.Boolean:
		return func(i int) parquet.Value { return parquet.BooleanValue(of.Value(i)) }
	case *array.Int8:
		return func(i int) parquet.Value { return parquet.Int32Value(int32(of.Value(i))) }
	case *array.Int16:
		return func(i int) parquet.Value { return parquet.Int32Value(int32(of.Value(i))) }
	case *array.Int32:
		return func(i int) parquet.Value { return parquet.Int32Value(of.Value(i)) }
	case *array.Int64:
		return func(i int) parquet.Value { return parquet.Int64Value(of.Value(i)) }
	case *array.Uint8:
		return func(i int) parquet.Value { return parquet.Int32Value(int32(of.Value(i))) }
	case *array.Uint16:
		return func(i int) parquet.Value { return parquet.Int32Value(int32(of.Value(i))) }
	case *array.Uint32:
		return func(i int) parquet.Value { return parquet.Int32Value(int32(of.Value(i))) }
	case *array.Uint64:
		return func(i int) parquet.Value { return parquet.Int64Value(int64(of.Value(i))) }
	case *array.Float32:
		return func(i int) parquet.Value { return parquet.FloatValue(of.Value(i)) }
	case *array.Float64:
		return func(i int) parquet.Value { return parquet.DoubleValue(of.Value(i)) }
	case *array.String:
		return func(i int) parquet.Value { return parquet.ByteArrayValue([]byte(of.Value(i))) }
	}
	panic(fmt.Sprintf("columns: no leaf of %s", of.DataType()))
}

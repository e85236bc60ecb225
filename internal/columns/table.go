package columns

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// A group of rows is written at so many bytes or rows. The first one settles the columns.
const (
	groupBytes = 32 << 20
	groupRows  = 1 << 20
)

// Columns beside those of values. A field of the same name has "value." before it.
const (
	indexColumn   = "index"
	keyColumn     = "key"
	itemColumn    = "item"
	valueColumn   = "value"
	faultColumn   = "fault"
	messageColumn = "fault_message"
)

type Writer struct {
	out *bufio.Writer
	to  *pqarrow.FileWriter
	// writing ends with the error of the batch that is written while the next one is made.
	writing chan error
	rows    []result
	bytes   int
	// columns are settled with the first group; objects says that they are fields.
	schema  *arrow.Schema
	columns []column
	objects bool
}

func NewWriter(to io.Writer) *Writer {
	w := &Writer{out: bufio.NewWriterSize(to, 1<<20), writing: make(chan error, 1)}
	w.writing <- nil
	return w
}

// Add takes a line of results as it is stored. It keeps nothing of it.
func (w *Writer) Add(line []byte) error {
	r, err := parseResult(line)
	if err != nil {
		return err
	}
	w.rows = append(w.rows, r)
	if w.bytes += len(line); w.bytes < groupBytes && len(w.rows) < groupRows {
		return nil
	}
	return w.flush()
}

func (w *Writer) Finish() error {
	if len(w.rows) > 0 || w.schema == nil {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if err := errors.Join(<-w.writing, w.to.Close()); err != nil {
		return err
	}
	return w.out.Flush()
}

func (w *Writer) flush() error {
	if w.schema == nil {
		w.objects = w.allObjects()
	}
	cells, err := w.cells()
	if err == nil && w.schema == nil {
		err = w.begin()
	}
	if err != nil {
		return err
	}
	batch := w.batch(cells)
	w.rows, w.bytes = w.rows[:0], 0
	if err := <-w.writing; err != nil {
		w.writing <- err
		return err
	}
	go func() {
		defer batch.Release()
		w.writing <- w.to.Write(batch)
	}()
	return nil
}

// allObjects reports whether all values are objects, and one of them has a field.
func (w *Writer) allObjects() (some bool) {
	for _, r := range w.rows {
		if r.fault == nil {
			fields, ok := r.fields()
			if !ok {
				return false
			}
			some = some || len(fields) > 0
		}
	}
	return some
}

// cells are the rows by column. The first group settles the columns; later ones must fit.
func (w *Writer) cells() (byColumn [][]cell, err error) {
	byColumn = make([][]cell, len(w.columns))
	at := map[string]int{}
	for i := range w.columns {
		at[w.columns[i].name] = i
		byColumn[i] = make([]cell, len(w.rows))
	}
	for row, r := range w.rows {
		fields, err := w.fieldsOf(r)
		if err != nil {
			return nil, err
		}
		for _, f := range fields {
			i, known := at[f.name]
			if !known && w.schema != nil {
				return nil, w.unlike(r, fmt.Sprintf("the first ones have no field %q", f.name))
			}
			if !known {
				i, at[f.name] = len(w.columns), len(w.columns)
				w.columns = append(w.columns, column{name: f.name})
				byColumn = append(byColumn, make([]cell, len(w.rows)))
			}
			x := cellOf(f.value)
			wider := w.columns[i].joined(x)
			if w.schema != nil && !wider.same(w.columns[i]) {
				return nil, w.unlike(r, fmt.Sprintf("%s is %s, and the column is of the type %s", f.name, x.value.excerpt(), w.columns[i].dataType()))
			}
			w.columns[i], byColumn[i][row] = wider, x
		}
	}
	return byColumn, nil
}

// fieldsOf returns the columns of a row beside its index and its fault.
func (w *Writer) fieldsOf(r result) (fields []field, err error) {
	if r.key != nil {
		fields = append(fields, field{keyColumn, value{text: r.key}})
	}
	if r.item != nil {
		fields = append(fields, field{itemColumn, value{text: r.item}})
	}
	switch {
	case r.fault != nil:
		return fields, nil
	case !w.objects:
		return append(fields, field{valueColumn, r.value}), nil
	}
	members, ok := r.fields()
	if !ok {
		return nil, w.unlike(r, "its value is no object, and the first ones are")
	}
	for _, f := range members {
		if f.name == indexColumn || f.name == faultColumn || f.name == messageColumn ||
			f.name == keyColumn && r.key != nil || f.name == itemColumn && r.item != nil {
			f.name = valueColumn + "." + f.name
		}
		fields = append(fields, f)
	}
	return fields, nil
}

func (w *Writer) unlike(r result, why string) error {
	return fmt.Errorf("item %d does not fit the columns of %s, which the first %d MiB of results settle: %s; write .jsonl, or let the task "+
		"return the same fields and types for each item", r.index, Parquet, groupBytes>>20, why)
}

func (w *Writer) begin() (err error) {
	fields := []arrow.Field{{Name: indexColumn, Type: arrow.PrimitiveTypes.Int64}}
	for _, c := range w.columns {
		fields = append(fields, arrow.Field{Name: c.name, Type: c.dataType(), Nullable: true})
	}
	for _, name := range []string{faultColumn, messageColumn} {
		fields = append(fields, arrow.Field{Name: name, Type: arrow.BinaryTypes.String, Nullable: true})
	}
	w.schema = listed(arrow.NewSchema(fields, nil))
	w.to, err = newParquetWriter(w.out, w.schema)
	return err
}

func (w *Writer) batch(cells [][]cell) arrow.RecordBatch {
	fields := w.schema.Fields()
	beside := arrow.NewSchema(slices.Concat(fields[:1], fields[len(w.columns)+1:]), nil)
	builder := array.NewRecordBuilder(memory.DefaultAllocator, beside)
	defer builder.Release()
	index := builder.Field(0).(*array.Int64Builder)
	fault, message := builder.Field(1).(*array.StringBuilder), builder.Field(2).(*array.StringBuilder)
	for _, r := range w.rows {
		index.Append(r.index)
		if r.fault == nil {
			fault.AppendNull()
			message.AppendNull()
		} else {
			fault.Append(string(r.fault.Kind))
			message.Append(r.fault.Message)
		}
	}
	others := builder.NewRecordBatch()
	defer others.Release()
	all := []arrow.Array{others.Column(0)}
	for i, c := range w.columns {
		all = append(all, c.build(cells[i], fields[i+1].Type))
	}
	return array.NewRecordBatch(w.schema, append(all, others.Column(1), others.Column(2)), int64(len(w.rows)))
}

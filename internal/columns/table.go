// Package columns writes results as Parquet files, and reads items from them.
//
// It owns what becomes of values there: their types, their columns, and what stands in
// the place of a failed item. It opens no file itself, and prints nothing. A reader ends
// at the end of its file or with its context.
package columns

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/results"
	"github.com/gpumux/gpumux/internal/text"
)

// A group of rows is written at so many bytes or rows. The first one settles the columns.
const groupBytes, groupRows = 32 << 20, 1 << 20

// Columns beside those of values. A field of the same name has "value." before it.
const (
	indexColumn   = "index"
	keyColumn     = "key"
	itemColumn    = "item"
	valueColumn   = "value"
	faultColumn   = "fault"
	messageColumn = "fault_message"
	// schemaFault stands in files alone: the value is in the store.
	schemaFault = "schema"
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
	// declared are the columns of values; nil if the first group settles them too.
	declared Schema
	// Unfit is about the results that do not fit them.
	Unfit *UnfitError
}

// NewWriter writes results with the columns of a schema, or those of the first values if
// it is nil.
func NewWriter(to io.Writer, declared Schema) *Writer {
	w := &Writer{out: bufio.NewWriterSize(to, 1<<20), writing: make(chan error, 1), declared: declared}
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

// UnfitError is about results that do not fit the declared columns.
type UnfitError struct {
	Count int64
	First error
}

func (e *UnfitError) Error() string {
	return fmt.Sprintf("results that do not fit --schema, and are faults in the file: %d (%v); another --schema, or a file .jsonl, takes them", e.Count, e.First)
}

// misfit makes a fault of a value that does not fit what is declared, and an error of one
// that does not fit the first ones.
func (w *Writer) misfit(row int, why error) error {
	r := &w.rows[row]
	switch {
	case w.declared == nil:
		return fmt.Errorf("item %d does not fit the columns of %s, which the first %d MiB of results settle: %w; write .jsonl, declare the "+
			"columns with --schema, or let the task return the same fields and types for each item", r.index, Parquet, groupBytes>>20, why)
	case r.fault != nil:
		return nil
	}
	r.fault = &gpumux.Fault{Kind: schemaFault, Message: why.Error()}
	if w.Unfit == nil {
		w.Unfit = &UnfitError{First: fmt.Errorf("item %d: %w", r.index, why)}
	}
	w.Unfit.Count++
	return nil
}

func (w *Writer) flush() error {
	if w.schema == nil {
		if err := w.begin(); err != nil {
			return err
		}
	}
	batch, err := w.batch()
	w.rows, w.bytes = w.rows[:0], 0
	if err != nil {
		return err
	}
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

// begin settles the columns: those that are declared, and those of the first group.
func (w *Writer) begin() (err error) {
	isValue := len(w.declared) == 1 && w.declared[0].Name == valueColumn
	w.objects = w.declared == nil && w.allObjects() || w.declared != nil && !isValue
	w.columns = []column{columnOf(arrow.Field{Name: indexColumn, Type: arrow.PrimitiveTypes.Int64})}
	for _, f := range w.declared {
		w.columns = append(w.columns, columnOf(f))
	}
	var names []string
	guesses := map[string]guess{}
	for _, r := range w.rows {
		fields := r.beside()
		if w.declared == nil {
			values, _ := w.values(r) // objects, if they are all
			fields = append(fields, values...)
		}
		for _, f := range fields {
			if _, known := guesses[f.name]; !known {
				names = append(names, f.name)
			}
			guesses[f.name] = guesses[f.name].joined(cellOf(f.value))
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(w.columns, func(c column) bool { return c.Name == name }) {
			w.columns = append(w.columns, guesses[name].column(name))
		}
	}
	var fields []arrow.Field
	w.columns = append(w.columns, guess{kind: textKind}.column(faultColumn), guess{kind: textKind}.column(messageColumn))
	for i, c := range w.columns {
		c.Nullable = i > 0
		fields = append(fields, c.Field)
	}
	w.schema = listed(arrow.NewSchema(fields, nil))
	w.to, err = newParquetWriter(w.out, w.schema)
	return err
}

// beside are the columns of a row beside its index, its value and its fault.
func (r result) beside() (fields []field) {
	if r.key != nil {
		fields = append(fields, field{keyColumn, value{text: r.key}})
	}
	if r.item != nil {
		fields = append(fields, field{itemColumn, value{text: r.item}})
	}
	return fields
}

// values are the columns of a row's value.
func (w *Writer) values(r result) (fields []field, err error) {
	switch {
	case r.fault != nil:
		return nil, nil
	case !w.objects:
		return []field{{valueColumn, r.value}}, nil
	}
	fields, ok := r.fields()
	if !ok {
		return nil, fmt.Errorf("it is %s, and is to be an object", text.Beginning(r.plain()))
	}
	for i, f := range fields {
		if f.name == indexColumn || f.name == faultColumn || f.name == messageColumn ||
			f.name == keyColumn && r.key != nil || f.name == itemColumn && r.item != nil {
			fields[i].name = valueColumn + "." + f.name
		}
	}
	return fields, nil
}

// cells are the rows by column.
func (w *Writer) cells() ([][]*cell, error) {
	byColumn, at := make([][]*cell, len(w.columns)), map[string]int{}
	for i, c := range w.columns {
		byColumn[i], at[c.Name] = make([]*cell, len(w.rows)), i
	}
	for row, r := range w.rows {
		byColumn[0][row] = &cell{kind: otherKind, value: value{text: strconv.AppendInt(nil, r.index, 10)}}
		values, err := w.values(r)
		for _, f := range append(r.beside(), values...) {
			i, known := at[f.name]
			switch {
			case !known:
				err = cmp.Or(err, fmt.Errorf("it has a field %q, for which there is no column", f.name))
			case len(f.arrays) > 0, len(f.text) == len("[]"), f.text[0] == 'n':
				byColumn[i][row] = cellOf(f.value)
			default:
				byColumn[i][row] = &cell{kind: otherKind, value: f.value}
			}
		}
		if err == nil {
			continue
		}
		if err := w.misfit(row, err); err != nil {
			return nil, err
		}
	}
	return byColumn, nil
}

func (w *Writer) batch() (arrow.RecordBatch, error) {
	cells, err := w.cells()
	if err != nil {
		return nil, err
	}
	all, faults := make([]arrow.Array, len(w.columns)), len(w.columns)-2
	for i, c := range w.columns {
		for row := 0; i == faults && row < len(w.rows); row++ { // by now it is known what does not fit
			if fault := w.rows[row].fault; fault != nil {
				cells[i][row] = cellOf(value{text: results.AppendString(nil, string(fault.Kind))})
				cells[i+1][row] = cellOf(value{text: results.AppendString(nil, fault.Message)})
			}
		}
		if all[i], err = c.fit(cells[i], w.schema.Field(i).Type, w.misfit); err != nil {
			return nil, err
		}
	}
	return array.NewRecordBatch(w.schema, all, int64(len(w.rows))), nil
}

// Parquet is the ending of files that hold columns.
const Parquet = ".parquet"

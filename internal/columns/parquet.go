package columns

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/gpumux/gpumux"
)

const (
	// Rows are decoded so many bytes, and at most so many rows, at a time.
	batchBytes, batchRows = 8 << 20, 4096
	// ahead is how much is read ahead for all columns, maxAhead for one.
	ahead, maxAhead = 64 << 20, 4 << 20
	// minAhead is the least that is read at once, and first of the end with the layout.
	minAhead = 64 << 10
	// smallAhead is read for a small read.
	smallAhead = 4 * minAhead
)

// table is an open file of rows.
type table struct {
	*pqarrow.FileReader
	properties *parquet.ReaderProperties
	size       int64
}

// openTable opens a file. Typed gives its columns the types that Arrow wrote.
func openTable(from *ranged, typed bool) (t table, err error) {
	properties := parquet.NewReaderProperties(memory.DefaultAllocator)
	properties.BufferedStreamEnabled = true
	properties.MaxCompressedPageSize, properties.MaxUncompressedPageSize = math.MaxInt32, math.MaxInt32
	f, err := file.NewParquetReader(io.NewSectionReader(from, 0, from.size), file.WithReadProps(properties))
	if err != nil {
		return t, err
	}
	if !typed { // it changes no value, and where it is damaged takes any amount of memory
		f.MetaData().FileMetaData.KeyValueMetadata = nil
	}
	r, err := pqarrow.NewFileReader(f, pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
	if err != nil {
		return t, err
	}
	t = table{r, properties, from.size}
	for i := range r.Manifest.Fields {
		t.settle(&r.Manifest.Fields[i])
	}
	return t, nil
}

// settle makes text of leaves that pqarrow takes for bytes, and times without a zone of
// INT96, which says nothing of one.
func (t table) settle(f *pqarrow.SchemaField) {
	if f.IsLeaf() {
		column := t.ParquetReader().MetaData().Schema.Column(f.ColIndex)
		switch column.LogicalType().(type) {
		case schema.EnumLogicalType, schema.JSONLogicalType:
			f.Field.Type = arrow.BinaryTypes.String
		}
		if column.PhysicalType() == parquet.Types.Int96 {
			f.Field.Type = &arrow.TimestampType{Unit: arrow.Nanosecond}
		}
	}
	for i := range f.Children {
		t.settle(&f.Children[i])
	}
}

func (t table) names() (all []string) {
	for _, f := range t.Manifest.Fields {
		all = append(all, f.Field.Name)
	}
	return all
}

func leavesOf(f pqarrow.SchemaField) (leaves []int) {
	if f.IsLeaf() {
		return []int{f.ColIndex}
	}
	for _, child := range f.Children {
		leaves = append(leaves, leavesOf(child)...)
	}
	return leaves
}

// each calls f with some rows of these columns at a time, which f does not keep.
func (t table) each(ctx context.Context, at []int, f func(columns []arrow.Array) error) error {
	var leaves []int
	for _, i := range at {
		leaves = append(leaves, leavesOf(t.Manifest.Fields[i])...)
	}
	rows, err := t.prepare(leaves)
	if err != nil {
		return err
	}
	batches, err := t.GetRecordReader(ctx, leaves, nil)
	if err != nil {
		return err
	}
	defer batches.Release()
	for batches.Next() {
		batch := batches.RecordBatch()
		if err := f(batch.Columns()); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		rows -= batch.NumRows()
	}
	if err := batches.Err(); err != nil || rows == 0 {
		return err
	}
	return errors.New("a row group ends before its last row")
}

// prepare counts the rows, and settles how much is read and decoded at a time.
func (t table) prepare(leaves []int) (rows int64, err error) {
	longest := int64(minAhead) // chunk of a column
	metadata := t.ParquetReader().MetaData()
	largest := 1.0 // the bytes of a row, in the group with the largest ones
	for n := range metadata.NumRowGroups() {
		group, unpacked := metadata.RowGroup(n), 0.0
		for _, leaf := range leaves {
			chunk, err := group.ColumnChunk(leaf)
			if err != nil {
				return 0, err
			}
			start, size := chunk.DataPageOffset(), chunk.TotalCompressedSize()
			if chunk.HasDictionaryPage() && chunk.DictionaryPageOffset() > 0 {
				start = min(start, chunk.DictionaryPageOffset())
			}
			if start < 0 || size < 0 || size > t.size-start {
				return 0, fmt.Errorf("row group %d lies outside of the file", n)
			}
			longest = max(longest, size)
			// Many equal values take few bytes in a page of any kind.
			width := max(8, metadata.Schema.Column(leaf).TypeLength())
			unpacked += max(float64(chunk.TotalUncompressedSize()), float64(chunk.NumValues())*float64(width))
		}
		rows += group.NumRows()
		largest = max(largest, unpacked/float64(max(1, group.NumRows())))
	}
	t.Props.BatchSize = max(1, min(batchRows, int64(batchBytes/largest)))
	t.properties.BufferSize = max(minAhead, min(maxAhead, ahead/int64(len(leaves)), longest))
	return rows, nil
}

// listed is a schema in which lists of a fixed size are plain ones: pqarrow cannot write
// null lists of a fixed size. Metadata keeps the original type.
func listed(schema *arrow.Schema) *arrow.Schema {
	described := base64.StdEncoding.EncodeToString(flight.SerializeSchema(schema, memory.DefaultAllocator))
	fields := schema.Fields()
	for i, f := range fields {
		if t, ok := f.Type.(*arrow.FixedSizeListType); ok {
			fields[i].Type = arrow.ListOfField(t.ElemField())
		}
	}
	return arrow.NewSchema(fields, new(arrow.NewMetadata([]string{"ARROW:schema"}, []string{described})))
}

func newParquetWriter(to io.Writer, schema *arrow.Schema) (*pqarrow.FileWriter, error) {
	options := []parquet.WriterProperty{parquet.WithCreatedBy("gpumux"), parquet.WithStats(false), parquet.WithDictionaryDefault(false),
		parquet.WithMaxRowGroupLength(groupRows)}
	for _, f := range schema.Fields() {
		path := parquet.ColumnPath{f.Name}
		if _, list := f.Type.(arrow.ListLikeType); !list { // numbers of arrays hardly repeat
			options = append(options, parquet.WithCompressionPath(path, compress.Codecs.Snappy),
				parquet.WithDictionaryPath(path, f.Type.ID() == arrow.STRING))
		}
	}
	return pqarrow.NewFileWriter(schema, to, parquet.NewWriterProperties(options...), pqarrow.DefaultWriterProps())
}

// ranged reads a file in few large stretches: each may be a request to a server.
type ranged struct {
	from Source
	size int64
	// window is what the last small read got, from start on.
	window []byte
	start  int64
	err    error
}

func newRanged(from Source, size int64) (*ranged, error) {
	r := &ranged{from: from, size: size}
	if _, err := r.ReadAt(make([]byte, 1), max(0, size-minAhead)); err != nil && err != io.EOF {
		return nil, err
	}
	return r, nil
}

func (r *ranged) ReadAt(data []byte, offset int64) (n int, err error) {
	if in := offset - r.start; in >= 0 && in < int64(len(r.window)) {
		n = copy(data, r.window[in:])
	}
	rest, offset := data[n:], offset+int64(n)
	if len(rest) == 0 {
		return n, nil
	}
	if len(rest) >= minAhead || offset >= r.size {
		more, err := r.read(rest, offset)
		return n + more, err
	}
	r.start, r.window = offset, slices.Grow(r.window[:0], smallAhead)[:min(smallAhead, r.size-offset)]
	more, err := r.read(r.window, offset)
	r.window = r.window[:more]
	if copied := copy(rest, r.window); copied < len(rest) {
		return n + copied, cmp.Or(err, io.ErrUnexpectedEOF)
	}
	return len(data), nil
}

// read reads from the file itself. That it ends too early is no error of reading it.
func (r *ranged) read(data []byte, at int64) (int, error) {
	n, err := r.from.ReadAt(data, at)
	if err != nil && err != io.EOF && r.err == nil {
		r.err = err
	}
	return n, err
}

// blame runs f. Where reading went well, its error or panic is a *gpumux.SourceError.
func (r *ranged) blame(ctx context.Context, name string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			known, ok := p.(error)
			if !ok {
				known = fmt.Errorf("%v", p)
			}
			err = fmt.Errorf("it makes no sense: %w", known)
		}
		var mistake *gpumux.SourceError
		switch {
		case err == nil:
		case errors.As(err, &mistake):
			mistake.Name = cmp.Or(mistake.Name, name)
			err = mistake
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case r.err != nil:
			err = r.err
		default:
			err = &gpumux.SourceError{Name: name, Problem: fmt.Sprintf("not read as %s: %v", Parquet, err),
				Hint: "check that the file is whole, and that its ending says what it is"}
		}
	}()
	return f()
}

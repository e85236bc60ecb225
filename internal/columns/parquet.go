package columns

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// Rows of Parquet are decoded so many bytes, and at most so many rows, at a time.
const (
	batchBytes = 8 << 20
	batchRows  = 4096
)

// parquetTable is a Parquet file.
type parquetTable struct {
	*pqarrow.FileReader
	from *ranged
}

func openParquet(from *ranged) (table, error) {
	properties := parquet.NewReaderProperties(memory.DefaultAllocator)
	properties.BufferedStreamEnabled, properties.BufferSize = true, 32<<10
	properties.MaxCompressedPageSize, properties.MaxUncompressedPageSize = math.MaxInt32, math.MaxInt32
	f, err := file.NewParquetReader(io.NewSectionReader(from, 0, from.size), file.WithReadProps(properties))
	if err != nil {
		return nil, err
	}
	// Arrow's schema changes no value, and a damaged one takes any amount of memory.
	f.MetaData().FileMetaData.KeyValueMetadata = nil
	r, err := pqarrow.NewFileReader(f, pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
	if err != nil {
		return nil, err
	}
	t := parquetTable{r, from}
	for i := range r.Manifest.Fields {
		t.settle(&r.Manifest.Fields[i])
	}
	return t, nil
}

// settle makes text of leaves that pqarrow takes for bytes, and times without a zone of
// INT96, which says nothing of one.
func (t parquetTable) settle(f *pqarrow.SchemaField) {
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

func (t parquetTable) names() (all []string) {
	for _, f := range t.Manifest.Fields {
		all = append(all, f.Field.Name)
	}
	return all
}

// leavesOf are the columns of a field that hold values.
func leavesOf(f pqarrow.SchemaField) (leaves []int) {
	if f.IsLeaf() {
		return []int{f.ColIndex}
	}
	for _, child := range f.Children {
		leaves = append(leaves, leavesOf(child)...)
	}
	return leaves
}

func (t parquetTable) each(ctx context.Context, at []int, f func(columns []arrow.Array) error) error {
	var leaves []int
	for _, i := range at {
		leaves = append(leaves, leavesOf(t.Manifest.Fields[i])...)
	}
	groups, err := t.groups(leaves)
	if err != nil {
		return err
	}
	for n, g := range groups {
		t.Props.BatchSize = max(1, min(batchRows, int64(float64(g.rows)*batchBytes/max(1, g.unpacked))))
		if err := t.eachOf(ctx, n, g.rows, leaves, f); err != nil {
			return err
		}
	}
	return nil
}

// group is the metadata of a row group, for the columns that are read.
type group struct {
	rows int64
	// unpacked is how many bytes their values take.
	unpacked float64
}

// groups finds where the columns lie.
func (t parquetTable) groups(leaves []int) (all []group, err error) {
	var wanted []stretch
	metadata := t.ParquetReader().MetaData()
	for n := range metadata.NumRowGroups() {
		in := metadata.RowGroup(n)
		g := group{rows: in.NumRows()}
		for _, leaf := range leaves {
			chunk, err := in.ColumnChunk(leaf)
			if err != nil {
				return nil, err
			}
			start, size := chunk.DataPageOffset(), chunk.TotalCompressedSize()
			if chunk.HasDictionaryPage() && chunk.DictionaryPageOffset() > 0 {
				start = min(start, chunk.DictionaryPageOffset())
			}
			if start < 0 || size < 0 || size > t.from.size-start {
				return nil, fmt.Errorf("row group %d lies outside of the file", n)
			}
			wanted = append(wanted, stretch{start, start + size})
			// Many equal values take few bytes in a page of any kind.
			width := max(8, metadata.Schema.Column(leaf).TypeLength())
			g.unpacked += max(float64(chunk.TotalUncompressedSize()), float64(chunk.NumValues())*float64(width))
		}
		all = append(all, g)
	}
	t.from.want(wanted, len(leaves))
	return all, nil
}

// eachOf reads a row group.
func (t parquetTable) eachOf(ctx context.Context, group int, rows int64, leaves []int, f func(columns []arrow.Array) error) error {
	batches, err := t.GetRecordReader(ctx, leaves, []int{group})
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
	metadata := arrow.NewMetadata([]string{"ARROW:schema"}, []string{described})
	return arrow.NewSchema(fields, &metadata)
}

// newParquetWriter writes batches as row groups.
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

package columns_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/columns"
	"github.com/gpumux/gpumux/internal/items"
)

// zeros are files with one group of many rows in few bytes.
func zeros(t *testing.T, rows int) map[string][]byte {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}, {Name: "i", Type: arrow.PrimitiveTypes.Int32}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues(make([]int64, rows), nil)
	for i := range rows {
		b.Field(1).(*array.Int32Builder).Append(int32(i))
	}
	batch := b.NewRecordBatch()
	defer batch.Release()
	var tables, batches bytes.Buffer
	p, err := pqarrow.NewFileWriter(schema, &tables, parquet.NewWriterProperties(parquet.WithDictionaryDefault(false),
		parquet.WithCompressionFor("n", compress.Codecs.Zstd)), pqarrow.DefaultWriterProps())
	require.NoError(t, err)
	require.NoError(t, p.Write(batch))
	require.NoError(t, p.Close())
	alone := arrow.NewSchema(schema.Fields()[:1], nil)
	a, err := ipc.NewFileWriter(&batches, ipc.WithSchema(alone), ipc.WithZstd())
	require.NoError(t, err)
	require.NoError(t, a.Write(array.NewRecordBatch(alone, batch.Columns()[:1], int64(rows))))
	require.NoError(t, a.Close())
	return map[string][]byte{"x.parquet": tables.Bytes(), "x.arrow": batches.Bytes()}
}

// A file of few bytes does not take all of a machine's memory.
func TestItems_RefusesWhatUnpacksToFarMore(t *testing.T) {
	before := *columns.MaxUnpacked
	*columns.MaxUnpacked = 1 << 20
	t.Cleanup(func() { *columns.MaxUnpacked = before })
	for name, data := range zeros(t, 1_000_000) {
		text, err := rowsOf(t, data, name, "n")
		require.Empty(t, text, "no row of it is given")
		var mistake *items.SourceError
		require.ErrorAs(t, err, &mistake)
		require.Regexp(t, "^"+name+`: (row group 0|a batch) of [0-9.]+ ?[kK]?i?B needs [0-9.]+ ?Mi?B of memory, and above 1 ?Mi?B that may be `+
			`at most 64 times as much; write the file anew with fewer rows in each \(row_group_size or max_chunksize in pyarrow\), or `+
			`name the columns to read$`, err.Error())
	}
	text, err := rowsOf(t, zeros(t, 1_000_000)["x.parquet"], "x.parquet", "i")
	require.NoError(t, err, "columns that nobody wants do not count")
	require.Equal(t, 1_000_000, strings.Count(text, "\n"))
	for name, data := range zeros(t, 10_000) {
		_, err := rowsOf(t, data, name, "n")
		require.NoError(t, err, "few rows: %s", name)
	}
	_, err = rowsOf(t, wide(t, 1, 2000), "x.parquet")
	require.NoError(t, err, "large in the file as well")
}

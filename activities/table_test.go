package activities

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/store"
)

// parquetFile has row groups of a hundred rows each.
func parquetFile(t *testing.T, groups int) []byte {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64}, {Name: "text", Type: arrow.BinaryTypes.String},
		{Name: "size", Type: arrow.PrimitiveTypes.Float32}}, nil)
	var file bytes.Buffer
	to, err := pqarrow.NewFileWriter(schema, &file, nil, pqarrow.DefaultWriterProps())
	require.NoError(t, err)
	for g := range groups {
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		for i := range 100 {
			n := 100*g + i
			b.Field(0).(*array.Int64Builder).Append(int64(n))
			b.Field(1).(*array.StringBuilder).Append(fmt.Sprintf("text %d", n))
			b.Field(2).(*array.Float32Builder).Append(float32(n) / 10)
		}
		require.NoError(t, to.Write(b.NewRecordBatch()))
	}
	require.NoError(t, to.Close())
	return file.Bytes()
}

// library is a store with files, and the activity that reads them.
type library struct {
	*testing.T
	*store.Store
	env *testsuite.TestActivityEnvironment
}

func newLibrary(t *testing.T, url string) library {
	t.Helper()
	st, err := store.Open(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	(&Housekeeping{Store: st}).Register(env)
	return library{t, st, env}
}

func (l library) put(key string, data []byte) {
	l.Helper()
	w, err := l.Store.Objects.Create(l.Context(), key)
	require.NoError(l, err)
	_, err = w.Write(data)
	require.NoError(l, err)
	require.NoError(l, w.Close())
}

func (l library) index(source, key string, columns ...string) (found contract.Source, err error) {
	l.Helper()
	got, err := l.env.ExecuteActivity(contract.IndexSource,
		contract.IndexInput{Source: source, Index: "maps/m/x.parts/source.index", Key: key, Columns: columns})
	if err == nil {
		require.NoError(l, got.Get(&found))
	}
	return found, err
}

func (l library) items(src contract.Source, start, end int64) (texts []string) {
	l.Helper()
	for item, err := range l.Store.Sources.Items(l.Context(), src, start, end) {
		require.NoError(l, err)
		texts = append(texts, string(item))
	}
	return texts
}

// Mistakes in a table end the map, and name it.
func TestIndexSource_TableMistakes(t *testing.T) {
	l := newLibrary(t, "file://"+filepath.Join(t.TempDir(), "store"))
	table := parquetFile(t, 3)
	l.put("x.parquet", table)
	l.put("cut.parquet", table[:len(table)/2])
	l.put("hole.parquet", append(make([]byte, 2000), table[2000:]...))
	l.put("text.parquet", []byte("{}\n"))
	l.put("empty.arrow", nil)
	l.put("x.arrow", table)
	for name, c := range map[string]struct {
		source, key string
		columns     []string
		want        string
	}{
		"unknown column": {"x.parquet", "", []string{"id", "txt"}, l.Store.Objects.Locate("x.parquet") + `: there is no column "txt"; it has id, text, size`},
		"cut off":        {"cut.parquet", "", nil, l.Store.Objects.Locate("cut.parquet") + ": not read as .parquet: "},
		"damaged":        {"hole.parquet", "", nil, l.Store.Objects.Locate("hole.parquet") + ": not read as .parquet: "},
		"text":           {"text.parquet", "", nil, l.Store.Objects.Locate("text.parquet") + ": not read as .parquet: "},
		"empty":          {"empty.arrow", "", nil, l.Store.Objects.Locate("empty.arrow") + ": not read as .arrow: "},
		"wrong ending":   {"x.arrow", "", nil, l.Store.Objects.Locate("x.arrow") + ": not read as .arrow: "},
		"none":           {"none.parquet", "", nil, "none.parquet: file does not exist"},
		"outside":        {"file:///etc/x.parquet", "", nil, "lies outside the store"},
		"key left out":   {"x.parquet", "id", []string{"text"}, `the first item has no field "id"; it has text`},
		"packed":         {"x.parquet.gz", "", nil, "never compressed as a whole"},
	} {
		_, err := l.index(c.source, c.key, c.columns...)
		require.ErrorContains(t, err, c.want, name)
		var failed *temporal.ApplicationError
		require.ErrorAs(t, err, &failed, name)
		require.Equal(t, string(gpumux.FaultBadInput), failed.Type(), name)
	}
}

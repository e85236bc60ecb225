package activities

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/codec"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/store"
	"github.com/gpumux/gpumux/internal/test/s3test"
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

func newLibrary(t *testing.T, url string, keys *codec.Keys) library {
	t.Helper()
	st, err := store.Open(t.Context(), url, keys)
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

func keysFor(t *testing.T) *codec.Keys {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.key"), []byte(strings.Repeat("0f", 32)), 0o600))
	keys, err := codec.Load(dir)
	require.NoError(t, err)
	return keys
}

// A worker reads a table where it lies, and no more than its columns: on disk, on a
// server, encrypted or not.
func TestIndexSource_Table(t *testing.T) {
	table := parquetFile(t, 5)
	server := s3test.New(t)
	plainly := filepath.Join(t.TempDir(), "store")
	for name, l := range map[string]library{
		"disk": newLibrary(t, "file://"+filepath.Join(t.TempDir(), "store"), nil), "s3": newLibrary(t, server.URL(""), nil),
		"encrypted": newLibrary(t, s3test.New(t).URL(""), keysFor(t)), "plain in an encrypted one": newLibrary(t, "file://"+plainly, keysFor(t)),
	} {
		if strings.HasPrefix(name, "plain") {
			require.NoError(t, os.MkdirAll(filepath.Join(plainly, "in"), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(plainly, "in/x.Parquet"), table, 0o644))
		} else {
			l.put("in/x.Parquet", table)
		}
		server.Requests()
		for _, source := range []string{"in/x.Parquet", l.Store.Objects.Locate("in/x.Parquet")} {
			all, err := l.index(source, "id")
			require.NoError(t, err, name)
			require.Equal(t, []string{`{"id":499,"text":"text 499","size":49.9}`}, l.items(all, 499, 500))
			two, err := l.index(source, "", "size", "id")
			require.NoError(t, err, name)
			require.EqualValues(t, 500, two.Items)
			require.Equal(t, l.Store.Objects.Locate("maps/m/x.parts/source.jsonl"), two.URL)
			require.Equal(t, []string{`{"size":12.3,"id":123}`, `{"size":12.4,"id":124}`}, l.items(two, 123, 125))
			require.NotEqual(t, all.Hash, two.Hash, "other columns are another input")
		}
		if name == "s3" {
			require.Len(t, gets(server.Requests(), "in/x.Parquet"), 2*2*2, "two for each index: to open it, and all of so small a file")
		}
	}
	made, err := os.ReadFile(filepath.Join(plainly, "maps/m/x.parts/source.jsonl"))
	require.NoError(t, err)
	require.NotContains(t, string(made), `"id"`, "what is made of a table is encrypted")
}

// gets are the requests that read an object.
func gets(requests []string, key string) (found []string) {
	for _, r := range requests {
		if strings.HasPrefix(r, "GET /bucket/"+key) {
			found = append(found, r)
		}
	}
	return found
}

// Mistakes in a table end the map, and name it.
func TestIndexSource_TableMistakes(t *testing.T) {
	l := newLibrary(t, "file://"+filepath.Join(t.TempDir(), "store"), nil)
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

package columns_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/columns"
)

// counted is a file that counts how often it is read, and how much of it. It fails where
// it is read from a place on, if that is not 0.
type counted struct {
	*bytes.Reader
	reads, bytes int
	failing      int64
}

var errGone = errors.New("the connection is gone")

func (c *counted) ReadAt(data []byte, offset int64) (int, error) {
	c.reads++
	if c.failing != 0 && offset+int64(len(data)) > c.failing {
		return 0, errGone
	}
	n, err := c.Reader.ReadAt(data, offset)
	c.bytes += n
	return n, err
}

func (c *counted) Close() error { return nil }

// rowsOf reads the rows of a file.
func rowsOf(t *testing.T, data []byte, name string, named ...string) (string, error) {
	t.Helper()
	return readRows(t, &counted{Reader: bytes.NewReader(data)}, name, named...)
}

func readRows(t *testing.T, from *counted, name string, named ...string) (string, error) {
	t.Helper()
	lines, err := columns.Items(t.Context(), from, from.Size(), name, named)
	if err != nil {
		return "", err
	}
	defer lines.Close()
	text, err := io.ReadAll(lines)
	return string(text), err
}

// wide is a file of row groups, with 1 KB of noise per row.
func wide(t *testing.T, groups, rows int) []byte {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64}, {Name: "text", Type: arrow.BinaryTypes.String},
		{Name: "noise", Type: arrow.BinaryTypes.Binary}}, nil)
	var file bytes.Buffer
	to, err := pqarrow.NewFileWriter(schema, &file, parquet.NewWriterProperties(parquet.WithDictionaryDefault(false)), pqarrow.DefaultWriterProps())
	require.NoError(t, err)
	random := rand.NewChaCha8([32]byte{})
	for g := range groups {
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		for i := range rows {
			noise := make([]byte, 1000)
			_, _ = random.Read(noise)
			b.Field(0).(*array.Int64Builder).Append(int64(g*rows + i))
			b.Field(1).(*array.StringBuilder).Append(fmt.Sprintf("text %d", i))
			b.Field(2).(*array.BinaryBuilder).Append(noise)
		}
		require.NoError(t, to.Write(b.NewRecordBatch()))
	}
	require.NoError(t, to.Close())
	return file.Bytes()
}

// Each read of a file may be a request to a server.
func TestItems_FewReads(t *testing.T) {
	data := wide(t, 4, 10_000)
	for _, c := range []struct {
		named        []string
		reads, bytes int
	}{
		{[]string{"id"}, 5, 1 << 20}, // the end of the file, and one of each group and column
		{[]string{"text", "id"}, 9, 1 << 20},
		{nil, 21, len(data) + 1<<20}, // 10 MB of noise a group, by 4 MiB
	} {
		from := &counted{Reader: bytes.NewReader(data)}
		text, err := readRows(t, from, "x.parquet", c.named...)
		require.NoError(t, err)
		require.Contains(t, text, `"id":39999`)
		require.LessOrEqual(t, from.reads, c.reads, c.named)
		require.LessOrEqual(t, from.bytes, c.bytes, c.named)
	}
	few := wide(t, 50, 10)
	from := &counted{Reader: bytes.NewReader(few)}
	_, err := readRows(t, from, "x.parquet")
	require.NoError(t, err)
	require.LessOrEqual(t, from.reads, 12, "small row groups are read together")
	_, err = rowsOf(t, few, "x.parquet", "noise", "text")
	require.NoError(t, err)
}

// A file that cannot be read now may be read later; one that is damaged may not.
func TestItems_LostConnectionIsNoDamage(t *testing.T) {
	data := wide(t, 2, 1000)
	from := &counted{Reader: bytes.NewReader(data), failing: int64(len(data)) - 100}
	_, err := readRows(t, from, "x.parquet")
	require.Equal(t, errGone, err, "at its end")
	from.failing = int64(len(data)) - 100_000
	from.Reader = bytes.NewReader(data[:from.failing])
	_, err = readRows(t, from, "x.parquet")
	require.ErrorAs(t, err, new(*gpumux.SourceError), "cut off")
}

// Files that are cut off, and pages and metadata that are damaged, are the file's mistake
// and no panic.
func TestItems_DamagedFiles(t *testing.T) {
	const rounds = 400
	whole, err := os.ReadFile("testdata/kinds.parquet")
	require.NoError(t, err)
	random := rand.New(rand.NewPCG(7, 8))
	failed := 0
	for round := range rounds {
		data := bytes.Clone(whole)
		if round%4 == 0 {
			data = data[:random.IntN(len(data))]
		} else {
			for range 1 + random.IntN(3) {
				data[random.IntN(len(data))] ^= byte(1 + random.IntN(255))
			}
		}
		if _, err := rowsOf(t, data, "x.parquet"); err != nil {
			var mistake *gpumux.SourceError
			require.ErrorAs(t, err, &mistake)
			require.Equal(t, "x.parquet", mistake.Name)
			failed++
		}
	}
	require.Greater(t, failed, rounds/4)
}

func TestItems_ReadsLZ4(t *testing.T) {
	lines := linesOf(t, "testdata/lz4.parquet")
	require.Len(t, lines, 200)
	for i, line := range lines {
		require.Equal(t, fmt.Sprintf(`{"text":"the text %d"}`, i/20%2), line)
	}
}

// One name stands for one column; values of one never stand in the place of another's.
func TestItems_RefusesTwoColumnsOfOneName(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}, {Name: "b", Type: arrow.PrimitiveTypes.Int64},
		{Name: "a", Type: arrow.PrimitiveTypes.Int64}}, nil)
	var file bytes.Buffer
	to, err := pqarrow.NewFileWriter(schema, &file, parquet.NewWriterProperties(), pqarrow.DefaultWriterProps())
	require.NoError(t, err)
	require.NoError(t, to.Close())
	_, err = rowsOf(t, file.Bytes(), "x.parquet")
	require.ErrorContains(t, err, `x.parquet: two columns are named "a"; rename one, or name the columns to read`)
	_, err = rowsOf(t, file.Bytes(), "x.parquet", "b")
	require.NoError(t, err)
}

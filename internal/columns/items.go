package columns

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/gpumux/gpumux/internal/items"
)

// Source is a file that rows are read from by position.
type Source interface {
	io.ReaderAt
	io.Closer
}

// table is an open file of rows.
type table interface {
	// names are those of its columns.
	names() []string
	// each calls f with some rows of these columns at a time, which f does not keep.
	each(ctx context.Context, at []int, f func(columns []arrow.Array) error) error
}

// Items gives the rows of a Parquet or an Arrow file as JSON lines: objects of the
// columns that are named, in that order, or of all. It reads ahead, but holds no more
// than a row group or a batch. It closes the file at the end. A file that is damaged, and
// a column that it lacks, are a *items.SourceError, here or of a later Read.
func Items(ctx context.Context, from Source, size int64, name string, named []string) (io.ReadCloser, error) {
	file, t, at, err := openTable(ctx, from, size, name, named)
	if err != nil {
		from.Close()
		return nil, err
	}
	reader, writer := io.Pipe()
	go func() {
		defer from.Close()
		to := bufio.NewWriterSize(writer, 256<<10)
		keys := keysOf(t.names(), at)
		err := file.blame(ctx, name, func() error {
			return t.each(ctx, at, func(columns []arrow.Array) error { return writeRows(to, keys, columns) })
		})
		if err == nil {
			err = to.Flush()
		}
		writer.CloseWithError(err)
	}()
	return reader, nil
}

// writeRows writes rows as lines of JSON.
func writeRows(to *bufio.Writer, keys [][]byte, columns []arrow.Array) (err error) {
	var row []byte
	for i := range columns[0].Len() {
		row = row[:0]
		for n, column := range columns {
			if row, err = appendCell(append(row, keys[n]...), column, i); err != nil {
				return err
			}
		}
		if _, err = to.Write(append(row, '}', '\n')); err != nil {
			return err
		}
	}
	return nil
}

// openTable opens a file and finds the columns that are named.
func openTable(ctx context.Context, from Source, size int64, name string, named []string) (file *ranged, t table, at []int, err error) {
	if file, err = newRanged(from, size); err != nil {
		return nil, nil, nil, err
	}
	err = file.blame(ctx, name, func() (err error) {
		if FormatOf(name) == Arrow {
			t, err = openArrow(file)
		} else {
			t, err = openParquet(file)
		}
		if err == nil {
			at, err = choose(t.names(), named, name)
		}
		return err
	})
	return file, t, at, err
}

// choose finds the columns that are named.
func choose(all, named []string, file string) (at []int, err error) {
	if len(named) == 0 {
		named = all
	}
	for _, name := range named {
		i := slices.Index(all, name)
		if i >= 0 && slices.Contains(all[i+1:], name) {
			return nil, &items.SourceError{Name: file, Problem: fmt.Sprintf("two columns are named %q", name),
				Hint: "rename one, or name the columns to read"}
		}
		if i < 0 {
			return nil, &items.SourceError{Name: file, Problem: fmt.Sprintf("there is no column %q", name),
				Hint: "it has " + strings.Join(all, ", ")}
		}
		at = append(at, i)
	}
	return at, nil
}

// keysOf are what stands before each value of a row.
func keysOf(names []string, at []int) (keys [][]byte) {
	for n, i := range at {
		before := byte(',')
		if n == 0 {
			before = '{'
		}
		keys = append(keys, append(appendText([]byte{before}, names[i]), ':'))
	}
	return keys
}

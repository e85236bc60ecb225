package columns

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gpumux/gpumux/store"
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
	// each calls f with every row as an object of the columns at these places. f keeps nothing of it.
	each(ctx context.Context, at []int, f func(row []byte) error) error
}

// Items gives the rows of a Parquet or an Arrow file of so many bytes as JSON lines: objects of the columns that are named, in that
// order, or of all. It reads one row group or batch at a time, and closes the file at the end.
func Items(ctx context.Context, from Source, size int64, name string, named []string) (io.ReadCloser, error) {
	open := openParquet
	if FormatOf(name) == Arrow {
		open = openArrow
	}
	t, err := open(from, size)
	if err != nil {
		from.Close()
		return nil, &store.SourceError{Name: name, Problem: fmt.Sprintf("not read as %s: %v", FormatOf(name), err),
			Hint: "check that the file is whole, and that its ending says what it is"}
	}
	at, err := choose(t.names(), named, name)
	if err != nil {
		from.Close()
		return nil, err
	}
	reader, writer := io.Pipe()
	go func() {
		defer from.Close()
		to := bufio.NewWriterSize(writer, 256<<10)
		err := t.each(ctx, at, func(row []byte) error {
			to.Write(row) // Flush returns the first error
			return to.WriteByte('\n')
		})
		if err == nil {
			err = to.Flush()
		}
		writer.CloseWithError(err)
	}()
	return reader, nil
}

// choose finds the columns that are named.
func choose(all, named []string, file string) (at []int, err error) {
	if len(named) == 0 {
		named = all
	}
	for _, name := range named {
		i := slices.Index(all, name)
		if i < 0 {
			return nil, &store.SourceError{Name: file, Problem: fmt.Sprintf("there is no column %q", name),
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

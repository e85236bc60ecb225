package columns

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/gpumux/gpumux"
)

// Source is a file that rows are read from by position.
type Source interface {
	io.ReaderAt
	io.Closer
}

// Items gives the rows of a Parquet file as JSON lines: objects of the columns that are
// named, in that order, or of all. It reads ahead, but holds no more than a row group. It
// closes the file at the end. A file that is damaged, and a column that it lacks, are a
// *gpumux.SourceError, here or of a later Read.
func Items(ctx context.Context, from Source, size int64, name string, named []string) (io.ReadCloser, error) {
	var write func(to *bufio.Writer) error
	file, err := newRanged(from, size)
	if err == nil {
		err = file.blame(ctx, name, func() (err error) {
			write, err = openRows(ctx, file, name, named)
			return err
		})
	}
	if err != nil {
		from.Close()
		return nil, err
	}
	reader, writer := io.Pipe()
	go func() {
		defer from.Close()
		to := bufio.NewWriterSize(writer, 256<<10)
		err := file.blame(ctx, name, func() error { return write(to) })
		if err == nil {
			err = to.Flush()
		}
		writer.CloseWithError(err)
	}()
	return reader, nil
}

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

// openRows finds the columns that are named. write gives the rows.
func openRows(ctx context.Context, file *ranged, name string, named []string) (write func(to *bufio.Writer) error, err error) {
	t, err := openTable(file)
	if err != nil {
		return nil, err
	}
	at, err := choose(t.names(), named, name)
	var keys [][]byte // the JSON before each value of a row
	for n, i := range at {
		before := []byte{','}
		if n == 0 {
			before[0] = '{'
		}
		keys = append(keys, append(appendText(before, t.names()[i]), ':'))
	}
	return func(to *bufio.Writer) error {
		return t.each(ctx, at, func(columns []arrow.Array) error { return writeRows(to, keys, columns) })
	}, err
}

func choose(all, named []string, file string) (at []int, err error) {
	if len(all) == 0 {
		return nil, &gpumux.SourceError{Name: file, Problem: "the table has no columns",
			Hint: "save it with those that items shall have; of a frame of pandas that has an index alone, frame.reset_index()"}
	}
	if len(named) == 0 {
		named = all
	}
	for _, name := range named {
		i := slices.Index(all, name)
		if i >= 0 && slices.Contains(all[i+1:], name) {
			return nil, &gpumux.SourceError{Name: file, Problem: fmt.Sprintf("two columns are named %q", name),
				Hint: "rename one, or name the columns to read"}
		}
		if i < 0 {
			return nil, &gpumux.SourceError{Name: file, Problem: fmt.Sprintf("there is no column %q", name),
				Hint: "it has " + strings.Join(all, ", ")}
		}
		at = append(at, i)
	}
	return at, nil
}

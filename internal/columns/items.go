package columns

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/arrays"
	"github.com/gpumux/gpumux/internal/results"
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
	t, err := openTable(file, false)
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

func appendCell(b []byte, column arrow.Array, i int) ([]byte, error) {
	if column.IsNull(i) {
		return append(b, "null"...), nil
	}
	switch column := column.(type) {
	case *array.Float32:
		return arrays.AppendFloat(b, float64(column.Value(i)), 32), nil
	case *array.Float64:
		return arrays.AppendFloat(b, column.Value(i), 64), nil
	case *array.Int64:
		return strconv.AppendInt(b, column.Value(i), 10), nil
	case *array.Float16:
		return append(b, arrays.HalfText(column.Value(i).Uint16())...), nil
	case interface{ Value(int) []byte }:
		return appendBytes(b, column.Value(i)), nil
	case *extensions.UUIDArray:
		return appendText(b, column.ValueStr(i)), nil
	case *array.Struct:
		return appendStruct(b, column, i)
	case *array.Map:
		// As a list of its pairs where its keys may not be text.
	case array.ListLike:
		from, end := column.ValueOffsets(i)
		b = append(b, '[')
		var err error
		for at := from; at < end && err == nil; at++ {
			if at > from {
				b = append(b, ',')
			}
			b, err = appendCell(b, column.ListValues(), int(at))
		}
		return append(b, ']'), err
	case array.StringLike:
		return appendText(b, column.Value(i)), nil
	case arrow.TypedArray[arrow.Timestamp]:
		t := column.(arrow.Array).DataType().(*arrow.TimestampType)
		b = column.Value(i).ToTime(t.Unit).AppendFormat(append(b, '"'), "2006-01-02T15:04:05.999999999")
		if t.TimeZone != "" {
			b = append(b, 'Z')
		}
		return append(b, '"'), nil
	}
	if t, ok := column.DataType().(arrow.DecimalType); ok { // all digits of its scale
		number := column.(interface{ ValueAsAny(int) any }).ValueAsAny(i).(interface{ ToString(int32) string })
		return append(append(append(b, '"'), number.ToString(t.GetScale())...), '"'), nil
	}
	text, err := json.Marshal(column.GetOneForMarshal(i))
	return append(b, text...), err
}

func appendStruct(b []byte, column *array.Struct, i int) (_ []byte, err error) {
	b = append(b, '{')
	for n := range column.NumField() {
		if n > 0 {
			b = append(b, ',')
		}
		b = append(appendText(b, column.DataType().(*arrow.StructType).Field(n).Name), ':')
		if b, err = appendCell(b, column.Field(n), i); err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

func appendBytes(b, data []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(b, '"'), data), '"')
}

// appendText adds a string. Bytes that are not UTF-8 are base64, as bytes are.
func appendText(b []byte, text string) []byte {
	if !utf8.ValidString(text) {
		return appendBytes(b, []byte(text))
	}
	return results.AppendString(b, text)
}

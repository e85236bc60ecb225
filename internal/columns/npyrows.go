package columns

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/gpumux/gpumux/internal/arrays"
	"github.com/gpumux/gpumux/internal/items"
	"github.com/gpumux/gpumux/internal/text"
)

// npyHead begins an array whose rows can be read, in NumPy's format 1.0.
var npyHead = regexp.MustCompile(`(?s)^.NUMPY\x01\x00.{1,2}\{'descr': '[<|]([biuf])([1248])', 'fortran_order': False, 'shape': \((\d+),([\d, ]*)\), \} *\n`)

// openNPY reads the header of an array; write gives its rows as lines of JSON.
func openNPY(ctx context.Context, file *ranged) (write func(to *bufio.Writer) error, err error) {
	from := bufio.NewReader(io.NewSectionReader(file, 0, file.size))
	begin, err := from.Peek(4096)
	found := npyHead.FindSubmatch(begin)
	switch {
	case err != nil && err != io.EOF:
		return nil, err
	case found == nil:
		return nil, &items.SourceError{Problem: "it holds no array whose rows can be read", Text: text.Beginning(begin),
			Hint: "save numbers or truths with a dimension or more, as numpy.save does with numpy.ascontiguousarray(array)"}
	}
	// A row is a value of arrays; a number is an array of one, without its brackets.
	row, rest, single := int64(found[2][0]-'0'), string(found[4]), len(found[4]) == 0
	value := []byte{arrays.OneArray, found[1][0], byte(row), 0, 0}
	for _, word := range strings.Fields(strings.ReplaceAll(cmp.Or(rest, "1"), ",", " ")) {
		n, _ := strconv.ParseInt(word, 10, 64)
		if row *= n; n <= 0 || n > file.size || row > file.size {
			return nil, fmt.Errorf("its rows are empty, or larger than the file: %s", found[0])
		}
		value[3]++
		value = binary.LittleEndian.AppendUint64(value, uint64(n))
	}
	rows, _ := strconv.ParseInt(string(found[3]), 10, 64)
	left := file.size - int64(len(found[0]))
	if _, err = from.Discard(len(found[0])); err != nil || rows != left/row || left%row != 0 {
		return nil, fmt.Errorf("it has %d bytes for %d rows of %d", left, rows, row)
	}
	file.want([]stretch{{0, file.size}}, 1)
	value = append(value, make([]byte, row)...)
	return func(to *bufio.Writer) error {
		for ; rows > 0 && ctx.Err() == nil; rows-- {
			if _, err := io.ReadFull(from, value[len(value)-int(row):]); err != nil {
				return err
			}
			line, err := arrays.Text(value)
			if err != nil {
				return err
			}
			if single {
				line = line[1 : len(line)-1]
			}
			to.Write(append(line, '\n')) // an error comes back from Flush
		}
		return context.Cause(ctx)
	}, nil
}

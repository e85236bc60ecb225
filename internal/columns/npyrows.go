package columns

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/arrays"
	"github.com/gpumux/gpumux/internal/text"
)

// npyHead begins an array, in NumPy's format 1.0 or later: its type, whether its order is
// Fortran's, and its shape.
var npyHead = regexp.MustCompile(
	`(?s)^.NUMPY(?:\x01\x00.{1,2}|[\x02\x03]\x00.{1,4})\{'descr': (.+?), 'fortran_order': (True|False), 'shape': \(([\d, ]*)\), \} *\n`)

// npyNumbers is a type of numbers or truths that can be read.
var npyNumbers = regexp.MustCompile(`^'([<>|])([biuf])([1248])'$`)

// unlike is the mistake of an array whose rows cannot be read as numbers, or nil.
func unlike(descr, fortran string, shape []string) error {
	mistake := func(problem, hint string) error { return &gpumux.SourceError{Problem: problem, Hint: hint} }
	if !npyNumbers.MatchString(descr) {
		return mistake(fmt.Sprintf("it is an array of %.80s, which is none of numbers of up to 64 bits or truths", descr),
			"save array.astype('f8'), or a table with pandas.DataFrame(array).to_parquet, or write JSON lines")
	}
	switch {
	case len(shape) == 0:
		return mistake("it is an array without dimensions, a single value", "save numpy.atleast_1d(array)")
	case fortran == "True" && len(shape) > 1:
		return mistake("its numbers lie in Fortran's order", "save numpy.ascontiguousarray(array)")
	case slices.Contains(shape[1:], "0"):
		return mistake(fmt.Sprintf("its rows are empty: the array has the shape (%s)", strings.Join(shape, ", ")), "save one whose rows have numbers")
	}
	return nil
}

// openNPY reads the header of an array; write gives its rows as lines of JSON.
func openNPY(ctx context.Context, file *ranged) (write func(to *bufio.Writer) error, err error) {
	from := bufio.NewReader(io.NewSectionReader(file, 0, file.size))
	begin, err := from.Peek(4096)
	found := npyHead.FindSubmatch(begin)
	switch {
	case err != nil && err != io.EOF:
		return nil, err
	case bytes.HasPrefix(begin, []byte("PK")):
		return nil, &gpumux.SourceError{Problem: "it is an archive of arrays, .npz", Hint: "save one of them: numpy.save('x.npy', numpy.load('x.npz')['name'])"}
	case found == nil:
		return nil, &gpumux.SourceError{Problem: "it does not begin as an array that numpy.save wrote", Text: text.Beginning(begin),
			Hint: "name the file after what it is"}
	}
	shape := strings.Fields(strings.ReplaceAll(string(found[3]), ",", " "))
	if err := unlike(string(found[1]), string(found[2]), shape); err != nil {
		return nil, err
	}
	// A row is a value of arrays; a number is an array of one, without its brackets.
	kind := npyNumbers.FindSubmatch(found[1])
	size, single := int64(kind[3][0]-'0'), len(shape) == 1
	row, value := size, []byte{arrays.OneArray, kind[2][0], byte(size), 0, 0}
	within := shape[1:]
	if single {
		within = []string{"1"}
	}
	for _, word := range within {
		n, _ := strconv.ParseInt(word, 10, 64)
		if row *= n; n <= 0 || n > file.size || row > file.size {
			return nil, fmt.Errorf("its rows are larger than the file: (%s)", found[3])
		}
		value[3]++
		value = binary.LittleEndian.AppendUint64(value, uint64(n))
	}
	rows, _ := strconv.ParseInt(shape[0], 10, 64)
	left := file.size - int64(len(found[0]))
	if _, err = from.Discard(len(found[0])); err != nil || rows != left/row || left%row != 0 {
		return nil, fmt.Errorf("it has %d bytes for %d rows of %d", left, rows, row)
	}
	file.ahead = maxAhead
	value = append(value, make([]byte, row)...)
	return func(to *bufio.Writer) error {
		for ; rows > 0 && ctx.Err() == nil; rows-- {
			data := value[len(value)-int(row):]
			if _, err := io.ReadFull(from, data); err != nil {
				return err
			}
			for ; kind[1][0] == '>' && len(data) > 0; data = data[size:] {
				slices.Reverse(data[:size])
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

package columns

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpumux/gpumux/internal/arrays"
)

// npyWriter writes an array with one row per item, as numpy.save does.
type npyWriter struct {
	file File
	to   *bufio.Writer
	line []byte // holds the value of the line being added
	// row is the form of all rows, without data. It has no type before the first.
	row arrays.Array
	// head is the size of the header.
	head int64
	rows int64
	// failed are the items without a value. Their rows are zeros until Finish.
	failed []int64
}

// Add is Writer's.
func (w *npyWriter) Add(line []byte) error {
	w.line = slices.Grow(w.line[:0], len(line))
	r, err := parseResult(line, w.line)
	if err != nil {
		return err
	}
	if r.index != w.rows {
		return fmt.Errorf("item %d comes where item %d belongs; a .npy file needs all results in order, .parquet takes some in any order",
			r.index, w.rows)
	}
	w.rows++
	if r.fault != nil {
		w.failed = append(w.failed, r.index)
		_, err := w.to.Write(w.row.Data)
		return err
	}
	a, loose, ok := r.array()
	if !ok {
		return fmt.Errorf("item %d has the value %s; a .npy file holds numbers of 64 bits, or arrays of one shape: write .parquet or .jsonl", r.index,
			r.excerpt())
	}
	if loose && a.Type == 'i' {
		if inexact(a.Data) >= 0 {
			return fmt.Errorf("item %d has a whole number that no float64 holds, which numbers of JSON are here: write .parquet or .jsonl", r.index)
		}
		a = widened(a)
	}
	if w.row.Type == 0 {
		if err := w.begin(a); err != nil {
			return err
		}
	}
	if a.Type != w.row.Type || a.Size != w.row.Size || !slices.Equal(a.Shape, w.row.Shape) {
		return fmt.Errorf("item %d is %s, and those before are %s; a .npy file holds arrays of one type and shape: write .parquet or .jsonl",
			r.index, describe(a), describe(w.row))
	}
	_, err = w.to.Write(a.Data)
	return err
}

// begin leaves room for the header, and for the rows before the first value.
func (w *npyWriter) begin(a arrays.Array) error {
	w.row = a
	w.row.Data = make([]byte, len(a.Data))
	w.head = int64(len(w.header(1<<62, 0)))
	if _, err := w.to.Write(make([]byte, w.head)); err != nil {
		return err
	}
	for range w.failed {
		if _, err := w.to.Write(w.row.Data); err != nil {
			return err
		}
	}
	return nil
}

// notNumbers are NaN as the floats of each size have it.
var notNumbers = map[int][]byte{2: {0, 0x7e}, 4: {0, 0, 0xc0, 0x7f}, 8: {0, 0, 0, 0, 0, 0, 0xf8, 0x7f}}

func (w *npyWriter) writeNaN() error {
	if w.row.Type != 'f' {
		return fmt.Errorf("item %d failed, and %s%d has no NaN for its row; write .parquet or .jsonl, or run what failed again",
			w.failed[0], string(w.row.Type), w.row.Size)
	}
	row := bytes.Repeat(notNumbers[w.row.Size], len(w.row.Data)/w.row.Size)
	for _, index := range w.failed {
		if _, err := w.file.WriteAt(row, w.head+index*int64(len(row))); err != nil {
			return err
		}
	}
	return nil
}

// Finish is Writer's.
func (w *npyWriter) Finish() (note string, err error) {
	if w.row.Type == 0 && w.rows > 0 {
		return "", errors.New("no item succeeded, so there is no array; `gpumux results ID --failed` says why")
	}
	if w.row.Type == 0 {
		w.row = arrays.Array{Type: 'f', Size: 8}
		w.head = int64(len(w.header(0, 0)))
	}
	if err := w.to.Flush(); err != nil {
		return "", err
	}
	if len(w.failed) > 0 {
		if err := w.writeNaN(); err != nil {
			return "", err
		}
		const named = 10
		indices := strings.Trim(strings.ReplaceAll(fmt.Sprint(w.failed[:min(len(w.failed), named)]), " ", ", "), "[]")
		if note = fmt.Sprintf("the rows of the %d failed items are NaN: %s", len(w.failed), indices); len(w.failed) > named {
			note += " and so on"
		}
	}
	_, err = w.file.WriteAt(w.header(w.rows, int(w.head)), 0)
	return note, err
}

// header returns a header of NumPy's format 1.0, padded to a multiple of 64 bytes.
func (w *npyWriter) header(rows int64, minSize int) []byte {
	kind := "<" + string(w.row.Type)
	if w.row.Size == 1 {
		kind = "|" + string(w.row.Type)
	}
	shape := strconv.FormatInt(rows, 10) + ","
	for _, n := range w.row.Shape {
		shape += " " + strconv.Itoa(n) + ","
	}
	text := fmt.Sprintf("{'descr': '%s%d', 'fortran_order': False, 'shape': (%s), }", kind, w.row.Size, shape)
	size := max(minSize, (10+len(text)+1+63)/64*64)
	b := append([]byte("\x93NUMPY\x01\x00"), byte(size-10), byte((size-10)>>8))
	b = append(append(b, text...), bytes.Repeat([]byte{' '}, size-len(b)-len(text)-1)...)
	return append(b, '\n')
}

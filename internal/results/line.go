// Package results has the form in which results are stored: one line of JSON each.
//
// It owns the fields of a line and their order, so that the index and the outcome are
// read from its beginning and values pass through as they are. It reads and writes no
// file.
package results

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/arrays"
	"github.com/gpumux/gpumux/internal/text"
)

// A line is a gpumux.Result as JSON with its fields in this order: index, then value,
// arrays or fault, then output, files, key and item. Arrays is Result.Arrays as
// appendUnbroken has it, so such a line is no JSON.
const (
	indexField  = `{"index":`
	valueField  = `,"value":`
	arraysField = `,"arrays":"`
	faultField  = `,"fault":`
	kindField   = `,"fault":{"kind":"`
	outputField = `,"output":`
	filesField  = `,"files":`
	keyField    = `,"key":`
	itemField   = `,"item":`
)

func Append(to []byte, r gpumux.Result) ([]byte, error) {
	to = strconv.AppendInt(append(to, indexField...), r.Index, 10)
	switch {
	case (r.Value == nil && r.Arrays == nil) == (r.Fault == nil) || r.Value != nil && r.Arrays != nil:
		return nil, fmt.Errorf("result %d must have either a value or a fault", r.Index)
	case r.Fault != nil:
		fault, err := text.Marshal(r.Fault)
		if err == nil && r.Fault.Kind == "" {
			err = errors.New("it has no kind")
		}
		if err != nil {
			return nil, fmt.Errorf("result %d: the fault: %w", r.Index, err)
		}
		to = append(append(to, faultField...), fault...)
	case r.Arrays != nil:
		if err := arrays.Check(r.Arrays); err != nil {
			return nil, fmt.Errorf("result %d: %w", r.Index, err)
		}
		to = append(appendUnbroken(append(to, arraysField...), r.Arrays), '"')
	case !text.Valid(r.Value):
		return nil, fmt.Errorf("result %d: the value is not JSON: %.60q", r.Index, r.Value)
	default:
		to = appendValue(append(to, valueField...), r.Value)
	}
	if r.Printed != "" {
		to = AppendString(append(to, outputField...), r.Printed)
	}
	if r.Files != nil {
		names, _ := text.Marshal(r.Files) // names always encode
		to = append(append(to, filesField...), names...)
	}
	if r.Key != nil {
		to = appendValue(append(to, keyField...), r.Key)
	}
	if r.Item != nil {
		to = appendValue(append(to, itemField...), r.Item)
	}
	return append(to, "}\n"...), nil
}

// appendValue adds a value on one line: between tokens a space does for a line break.
func appendValue(to, value []byte) []byte {
	at := len(to)
	to = append(to, value...)
	for i, b := range to[at:] {
		if b == '\n' || b == '\r' {
			to[at+i] = ' '
		}
	}
	return to
}

// Outcome has the fields at the beginning of a line.
type Outcome struct {
	Index int64
	// Kind is empty for a value.
	Kind gpumux.FaultKind
}

// ParseOutcome reads the beginning of a line, which may lack its newline.
func ParseOutcome(line []byte) (Outcome, error) {
	index, rest, ok := cutIndex(line)
	if !ok || !bytes.HasSuffix(bytes.TrimSuffix(rest, []byte{'\n'}), []byte{'}'}) {
		return Outcome{}, fmt.Errorf("not a result: %.60q", line)
	}
	o := Outcome{Index: index}
	if bytes.HasPrefix(rest, []byte(valueField)) || bytes.HasPrefix(rest, []byte(arraysField)) {
		return o, nil
	}
	if tail, ok := bytes.CutPrefix(rest, []byte(kindField)); ok {
		if end := bytes.IndexByte(tail, '"'); end > 0 && bytes.IndexByte(tail[:end], '\\') < 0 {
			o.Kind = gpumux.FaultKind(tail[:end])
			return o, nil
		}
	}
	return Outcome{}, fmt.Errorf("neither a value nor a fault: %.60q", line)
}

// Parse decodes a line of results, with arrays as JSON.
func Parse(line []byte) (r gpumux.Result, err error) {
	r, err = ParseStored(line)
	if err == nil && r.Arrays != nil {
		r.Value, err = arrays.Text(r.Arrays)
		r.Arrays = nil
	}
	return r, err
}

// ParseStored decodes a line of results, with arrays as Result.Arrays.
func ParseStored(line []byte) (r gpumux.Result, err error) {
	head, packed, tail, err := cutArrays(line)
	if packed != nil {
		r.Arrays, err = appendBroken(make([]byte, 0, len(packed)), packed)
	}
	if index, rest, ok := cutIndex(head); ok && len(rest) == 0 && string(bytes.TrimSpace(tail)) == "}" {
		r.Index = index
	} else if err == nil {
		err = json.Unmarshal(slices.Concat(head, tail), &r)
	}
	if err != nil {
		return r, fmt.Errorf("not a result: %w: %.60q", err, line)
	}
	return r, nil
}

// cutArrays cuts a line around its arrays, nil without any. Head and tail make a line.
func cutArrays(line []byte) (head, packed, tail []byte, err error) {
	at := bytes.IndexByte(line[:min(len(line), 48)], ',')
	if at < 0 || !bytes.HasPrefix(line[at:], []byte(arraysField)) {
		return line, nil, nil, nil
	}
	packed, tail, err = cutUnbroken(line[at+len(arraysField):])
	if err == nil && (len(tail) < 2 || tail[0] != '"') {
		err = errBroken
	}
	if err != nil {
		return nil, nil, nil, err
	}
	return line[:at:at], packed, tail[1:], nil
}

// Plain is a line of results with its arrays as JSON.
func Plain(line []byte) ([]byte, error) {
	head, packed, tail, err := cutArrays(line)
	if err == nil && packed == nil {
		return line, nil
	}
	r, err := ParseStored(line)
	if err != nil {
		return nil, err
	}
	text, err := arrays.Text(r.Arrays)
	if err != nil {
		return nil, fmt.Errorf("not a result: %w: %.60q", err, line)
	}
	return slices.Concat(head, []byte(valueField), text, tail), nil
}

func cutIndex(line []byte) (index int64, rest []byte, ok bool) {
	rest, ok = bytes.CutPrefix(line, []byte(indexField))
	digits := 0
	for ; ok && digits < len(rest) && digits < 18 && rest[digits]-'0' < 10; digits++ {
		index = index*10 + int64(rest[digits]-'0')
	}
	return index, rest[digits:], ok && digits > 0
}

// AppendString adds text as a JSON string.
func AppendString[S string | []byte](to []byte, s S) []byte {
	to, _ = jsontext.AppendQuote(to, s) // what is no UTF-8 becomes U+FFFD
	return to
}

// Lines yields the lines of a file of results, each valid until the next step. After an
// error nothing follows.
func Lines(file io.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		lines := LineReader{From: bufio.NewReaderSize(file, 256<<10)}
		for {
			line, err := lines.Next()
			if err == io.EOF || !yield(line, err) || err != nil {
				return
			}
		}
	}
}

type LineReader struct {
	From *bufio.Reader
	long []byte
}

// Next returns a line, valid until the next, with its newline, which the last may lack.
func (l *LineReader) Next() ([]byte, error) {
	line, err := l.From.ReadSlice('\n')
	if err == nil {
		return line, nil
	}
	l.long = append(l.long[:0], line...)
	for err == bufio.ErrBufferFull {
		line, err = l.From.ReadSlice('\n')
		l.long = append(l.long, line...)
	}
	if err == io.EOF && len(l.long) > 0 {
		err = nil
	}
	return l.long, err
}

// Bytes stand in a line without line breaks: behind their size in ten digits, stretches
// of at most mostUnbroken bytes. Each begins with a byte that says how many they are, in
// the place of the break before the next one; after mostUnbroken of them there is none.
// That costs a 250th of the size, and a tenth of the time of base64.
const (
	mostUnbroken = 254
	sizeDigits   = 10
)

var errBroken = errors.New("its arrays are cut off or were changed")

// appendUnbroken adds data without line breaks.
func appendUnbroken(to, data []byte) []byte {
	begin := len(to) + sizeDigits
	to = append(to, "0000000000"...)
	for last := false; !last; {
		n := bytes.IndexByte(data[:min(len(data), mostUnbroken)], '\n')
		next := n + 1
		if n < 0 {
			n = min(len(data), mostUnbroken)
			next, last = n, n < mostUnbroken
		}
		length := byte(n)
		if n >= '\n' {
			length++ // so that no length is a break
		}
		to = append(append(to, length), data[:n]...)
		data = data[next:]
	}
	copy(to[begin-sizeDigits:], fmt.Sprintf("%0*d", sizeDigits, len(to)-begin))
	return to
}

// cutUnbroken cuts what appendUnbroken wrote off the beginning of a text.
func cutUnbroken(text []byte) (packed, rest []byte, err error) {
	digits := text[:min(len(text), sizeDigits)]
	size, err := strconv.ParseUint(string(digits), 10, 62)
	if text = text[len(digits):]; err != nil || size == 0 || size > uint64(len(text)) {
		return nil, nil, errBroken
	}
	return text[:size:size], text[size:], nil
}

// appendBroken adds the data of stretches.
func appendBroken(to, packed []byte) ([]byte, error) {
	for len(packed) > 0 {
		n := int(packed[0])
		if n > '\n' {
			n--
		}
		if packed = packed[1:]; n > len(packed) {
			return nil, errBroken
		}
		to = append(to, packed[:n]...)
		if packed = packed[n:]; n < mostUnbroken && len(packed) > 0 {
			to = append(to, '\n')
		}
	}
	return to, nil
}

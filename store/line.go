package store

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/arrays"
)

// A line of results is a gpumux.Result as JSON with its fields in this order: index, then value, arrays or fault, then output, files,
// key and item. So index and outcome are read from its beginning, and values pass through as they are. Arrays is Result.Arrays in base64.
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

// wholeValue is the size from which a value is not copied into its line.
const wholeValue = 64 << 10

// encodeLine writes a result into a block of memory, or into memory of its own if it does not fit there.
func encodeLine(r gpumux.Result, block []byte) (e entry, rest []byte, err error) {
	at := len(block)
	line, err := appendStart(block, r)
	if err != nil {
		return e, block, err
	}
	e.index, e.arrays = r.Index, r.Arrays != nil
	if len(r.Arrays) >= wholeValue {
		e.line, e.value, e.after = line[at:len(line):len(line)], base64.StdEncoding.AppendEncode(nil, r.Arrays), appendEnd([]byte{'"'}, r)
		return e, line, nil
	}
	if len(r.Value) >= wholeValue && bytes.IndexByte(r.Value, '\n') < 0 && bytes.IndexByte(r.Value, '\r') < 0 {
		e.line, e.value, e.after = line[at:len(line):len(line)], r.Value, appendEnd(nil, r)
		return e, line, nil
	}
	if e.arrays {
		line = appendEnd(append(base64.StdEncoding.AppendEncode(line, r.Arrays), '"'), r)
	} else {
		line = appendEnd(appendValue(line, r.Value), r)
	}
	e.line = line[at:len(line):len(line)]
	return e, line, nil
}

// AppendLine adds a result as a line of results, without its end.
func AppendLine(to []byte, r gpumux.Result) ([]byte, error) {
	line, err := appendStart(to, r)
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(appendEnd(appendValue(line, r.Value), r), []byte{'\n'}), nil
}

// appendStart adds what stands before the value of a result. It adds a fault as a whole.
func appendStart(to []byte, r gpumux.Result) ([]byte, error) {
	to = strconv.AppendInt(append(to, indexField...), r.Index, 10)
	switch {
	case (r.Value == nil && r.Arrays == nil) == (r.Fault == nil) || r.Value != nil && r.Arrays != nil:
		return nil, fmt.Errorf("result %d must have either a value or a fault", r.Index)
	case r.Fault != nil:
		fault, err := encode(r.Fault)
		if err == nil && r.Fault.Kind == "" {
			err = errors.New("it has no kind")
		}
		if err != nil {
			return nil, fmt.Errorf("result %d: the fault: %w", r.Index, err)
		}
		return append(append(to, faultField...), fault...), nil
	case r.Arrays != nil:
		if err := arrays.Check(r.Arrays); err != nil {
			return nil, fmt.Errorf("result %d: %w", r.Index, err)
		}
		return append(to, arraysField...), nil
	case !json.Valid(r.Value) || !utf8.Valid(r.Value):
		return nil, fmt.Errorf("result %d: the value is not JSON: %q", r.Index, excerpt(r.Value))
	}
	return append(to, valueField...), nil
}

// appendValue adds a value on one line: a line break can only stand between tokens, where a space does as well.
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

func appendEnd(to []byte, r gpumux.Result) []byte {
	if r.Output != "" {
		to = appendString(append(to, outputField...), r.Output)
	}
	if r.Files != nil {
		names, _ := encode(r.Files) // names always encode
		to = append(append(to, filesField...), names...)
	}
	if r.Key != nil {
		to = appendValue(append(to, keyField...), r.Key)
	}
	if r.Item != nil {
		to = appendValue(append(to, itemField...), r.Item)
	}
	return append(to, "}\n"...)
}

// encode is json.Marshal without the escapes that only web pages need.
func encode(value any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// outcome is what the beginning of a line says.
type outcome struct {
	index int64
	// kind is empty for a value.
	kind gpumux.Kind
}

// parseOutcome reads the beginning of a line, which ends with its newline.
func parseOutcome(line []byte) (outcome, error) {
	rest, ok := bytes.CutPrefix(line, []byte(indexField))
	digits := 0
	var o outcome
	for ; ok && digits < len(rest) && digits < 18 && rest[digits]-'0' < 10; digits++ {
		o.index = o.index*10 + int64(rest[digits]-'0')
	}
	if !ok || digits == 0 || !bytes.HasSuffix(rest, []byte("}\n")) {
		return outcome{}, fmt.Errorf("not a result: %q", excerpt(line))
	}
	rest = rest[digits:]
	if bytes.HasPrefix(rest, []byte(valueField)) || bytes.HasPrefix(rest, []byte(arraysField)) {
		return o, nil
	}
	if tail, ok := bytes.CutPrefix(rest, []byte(kindField)); ok {
		if end := bytes.IndexByte(tail, '"'); end > 0 && bytes.IndexByte(tail[:end], '\\') < 0 {
			o.kind = internKind(tail[:end])
			return o, nil
		}
	}
	return outcome{}, fmt.Errorf("neither a value nor a fault: %q", excerpt(line))
}

// internKind saves an allocation for every fault of a known kind.
func internKind(text []byte) gpumux.Kind {
	for _, kind := range gpumux.Kinds() {
		if string(text) == string(kind) {
			return kind
		}
	}
	return gpumux.Kind(text)
}

// ParseResult decodes a line of results, with arrays as JSON.
func ParseResult(line []byte) (r gpumux.Result, err error) {
	r, err = ParseStored(line)
	if err == nil && r.Arrays != nil {
		r.Value, err = arrays.Text(r.Arrays)
		r.Arrays = nil
	}
	return r, err
}

// ParseStored decodes a line of results, with arrays as Result.Arrays.
func ParseStored(line []byte) (r gpumux.Result, err error) {
	head, text, tail := cutArrays(line)
	if text == nil {
		err = json.Unmarshal(line, &r)
	} else if r.Arrays, err = base64.StdEncoding.AppendDecode([]byte{}, text); err == nil {
		err = json.Unmarshal(slices.Concat(head, tail), &r)
	}
	if err != nil {
		return r, fmt.Errorf("not a result: %w: %q", err, excerpt(line))
	}
	return r, nil
}

// cutArrays cuts a line around the base64 of its arrays, which is nil where it has none. Head and tail make a line without them.
func cutArrays(line []byte) (head, text, tail []byte) {
	at := bytes.IndexByte(line[:min(len(line), 48)], ',')
	if at < 0 || !bytes.HasPrefix(line[at:], []byte(arraysField)) {
		return line, nil, nil
	}
	rest := line[at+len(arraysField):]
	end := bytes.IndexByte(rest, '"')
	if end < 0 {
		return line, nil, nil
	}
	return line[:at:at], rest[:end:end], rest[end+1:]
}

// Plain is a line of results with its arrays as JSON. A line without arrays is returned as it is.
func Plain(line []byte) ([]byte, error) {
	head, packed, tail := cutArrays(line)
	if packed == nil {
		return line, nil
	}
	var text json.RawMessage
	value, err := base64.StdEncoding.AppendDecode([]byte{}, packed)
	if err == nil {
		text, err = arrays.Text(value)
	}
	if err != nil {
		return nil, fmt.Errorf("not a result: %w: %q", err, excerpt(line))
	}
	return slices.Concat(head, []byte(valueField), text, tail), nil
}

// tally counts outcomes.
type tally struct {
	succeeded, failed int64
	faults            map[gpumux.Kind]int64
}

func (t *tally) count(o outcome) {
	if o.kind == "" {
		t.succeeded++
		return
	}
	t.failed++
	if t.faults == nil {
		t.faults = map[gpumux.Kind]int64{}
	}
	t.faults[o.kind]++
}

// IndexOf reads the index of a result from the beginning of its line: {"index":7,…
func IndexOf(line []byte) (int64, error) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"index":`))
	digits, _, more := bytes.Cut(rest, []byte{','})
	index, err := strconv.ParseInt(string(digits), 10, 64)
	if !ok || !more || err != nil {
		return 0, fmt.Errorf("not a result: %.60q", line)
	}
	return index, nil
}

// Package text makes strangers' text fit to be shown, and reads the fields of strangers'
// JSON.
//
// It owns how a long value is cut, what would mean something in Markdown, and how JSON
// says NaN. It never writes anywhere. It holds no state and so never has to stop.
package text

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// FieldOf is the value of a field of an item, which is valid JSON: the last one where the
// item repeats it, as tasks read it. It is nil where the item is no object or lacks the
// field.
func FieldOf(item json.RawMessage, name string) (found json.RawMessage) {
	EachField(item, func(field string, value []byte) bool {
		if field == name {
			found = value
		}
		return true
	})
	return found
}

// CheckField checks that the first item has the field that is to be the key of items.
func CheckField(first json.RawMessage, name string) error {
	var names []string
	if !EachField(first, func(field string, _ []byte) bool { names = append(names, field); return true }) {
		return fmt.Errorf("%q is no field: the first item is no object but %s", name, Beginning(first))
	}
	if slices.Contains(names, name) {
		return nil
	}
	return fmt.Errorf("the first item has no field %q; it has %s", name, List(names))
}

// List writes names for people, the first twenty of them.
func List(names []string) string {
	const shown = 20
	switch n := len(names); {
	case n == 0:
		return "none"
	case n > shown:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), n-shown)
	}
	return strings.Join(names, ", ")
}

// When is a part of a text, or nothing where it is not known.
func When(known bool, format string, args ...any) string {
	if !known {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// EachField calls f with the fields of an object until it returns false. It reports
// whether the item is an object.
//
//workflowcheck:ignore
func EachField(item []byte, f func(name string, value []byte) bool) bool {
	in := jsontext.NewDecoder(bytes.NewBuffer(item), lenient...)
	if begin, err := in.ReadToken(); err != nil || begin.Kind() != '{' {
		return false
	}
	for in.PeekKind() == '"' {
		name, _ := in.ReadToken() // a quoted name
		if field := name.String(); !f(field, next(in, item)) {
			break
		}
	}
	return true
}

// EachEntry calls f with the entries of a list until it returns false.
func EachEntry(list []byte, f func(value []byte) bool) {
	in := jsontext.NewDecoder(bytes.NewBuffer(list), lenient...)
	_, _ = in.ReadToken() // the bracket
	for kind := in.PeekKind(); kind > 0 && kind != ']' && f(next(in, list)); kind = in.PeekKind() {
	}
}

// lenient takes what encoding/json does.
var lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// next reads a value, which is a part of the text of the decoder.
func next(in *jsontext.Decoder, text []byte) []byte {
	value, _ := in.ReadValue() // of valid JSON
	end := in.InputOffset()
	return text[end-int64(len(value)) : end]
}

// Beginning is the first 60 bytes of a value, for messages about it.
func Beginning(value []byte) string { return beginning(value, 60) }

// Excerpt is the beginning of a value, of as many bytes as a fault keeps of its item.
func Excerpt(value []byte) string { return beginning(value, 200) }

func beginning(value []byte, limit int) string {
	if len(value) <= limit {
		return strings.ToValidUTF8(string(Unescaped(value)), "\uFFFD")
	}
	return strings.ToValidUTF8(string(Unescaped(value[:limit-len("…")])), "") + "…"
}

// Marshal is JSON on one line, without the escapes that only web pages need.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// Valid reports whether text is JSON in UTF-8.
func Valid(text []byte) bool { return jsontext.Value(text).IsValid(lenient...) && utf8.Valid(text) }

// JSON has no number for NaN and the infinities. gpumux writes a string whose first
// letter is an escape. Other readers of JSON read the string; gpumux's own read the
// number, since nobody writes a text of that name so.
const (
	NaN           = `"\u004eaN"`
	Infinity      = `"\u0049nfinity"`
	MinusInfinity = `"\u002dInfinity"`
)

// NonFinite are the numbers behind these strings.
var NonFinite = map[string]float64{NaN: math.NaN(), Infinity: math.Inf(1), MinusInfinity: math.Inf(-1)}

// Unescaped is JSON for people, with "NaN" in place of NaN. It returns json itself where
// nothing is to be replaced.
func Unescaped(json []byte) []byte {
	if bytes.IndexByte(json, '\\') < 0 || !bytes.Contains(json, []byte(`"\u00`)) {
		return json
	}
	json = bytes.ReplaceAll(json, []byte(NaN), []byte(`"NaN"`))
	json = bytes.ReplaceAll(json, []byte(Infinity), []byte(`"Infinity"`))
	return bytes.ReplaceAll(json, []byte(MinusInfinity), []byte(`"-Infinity"`))
}

// Plain makes one line of text that Markdown, which the Web UI shows, leaves as it is:
// names, faults and values can hold anything. Text with a meaning in Markdown becomes
// code, in which there are no links, images and HTML; backticks would end it.
func Plain(text string) string {
	line := strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
			return unicode.ReplacementChar
		}
		return r
	}, text)
	if !strings.ContainsAny(line, "`*[]<>!\\|~#&@$^") && !strings.Contains(line, "://") && !strings.Contains(strings.ToLower(line), "www.") {
		return line
	}
	return "`" + strings.ReplaceAll(line, "`", "'") + "`"
}

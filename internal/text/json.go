package text

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

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

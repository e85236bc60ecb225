package text

import (
	"bytes"
	"encoding/json"
	"math"
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

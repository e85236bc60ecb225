package text

import (
	"bytes"
	"math"
)

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

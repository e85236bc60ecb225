package wire

import (
	"encoding/base64"
	"encoding/json"

	"github.com/gpumux/gpumux/internal/arrays"
)

// Kind is how a value travels.
type Kind int

const (
	// JSON values are their own text.
	JSON Kind = iota
	// Bytes become a string in base64.
	Bytes
	// Array is numbers behind their type and shape; they become nested lists.
	Array Kind = arrays.OneArray
	// Mixed is JSON with arrays in it.
	Mixed Kind = arrays.Mixed
)

const maxText = 1 << 30

// Text is the JSON of a value. A *ProtocolError says what is wrong with it.
func (k Kind) Text(value []byte) (json.RawMessage, error) {
	switch k {
	case JSON:
		return value, nil
	case Bytes:
		size := base64.StdEncoding.EncodedLen(len(value)) + 2
		if size > maxText {
			return nil, broken("a value of %d bytes would be %d as base64; at most %d are allowed", len(value), size, maxText)
		}
		b := append(make([]byte, 0, size), '"')
		b = base64.StdEncoding.AppendEncode(b, value)
		return append(b, '"'), nil
	case Array, Mixed:
		text, err := arrays.Text(append([]byte{byte(k)}, value...))
		if err != nil {
			return nil, broken("%v", err)
		}
		return text, nil
	}
	return nil, broken("a value is of kind %d; kinds are 0 to %d", int(k), int(Mixed))
}

package wire

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"strconv"
)

// Kind is how a value travels.
type Kind int

const (
	// JSON values are their own text.
	JSON Kind = iota
	// Bytes become a string in base64.
	Bytes
	// Array is numbers behind a description of their type and shape; they become nested lists.
	Array
)

// maxText is the most bytes of JSON that a value may become.
const maxText = 1 << 30

// element is a type of an array's numbers: how it is written, and the most bytes that its text takes.
type element struct {
	size, width int
	text        func(b, raw []byte) []byte
}

// elements are the types that an array may have, by the letter and the size in bytes that NumPy gives them. Numbers are
// little-endian.
var elements = map[[2]byte]element{
	{'b', 1}: {1, 5, func(b, raw []byte) []byte { return strconv.AppendBool(b, raw[0] != 0) }},
	{'i', 1}: {1, 4, func(b, raw []byte) []byte { return strconv.AppendInt(b, int64(int8(raw[0])), 10) }},
	{'i', 2}: {2, 6, func(b, raw []byte) []byte {
		return strconv.AppendInt(b, int64(int16(binary.LittleEndian.Uint16(raw))), 10)
	}},
	{'i', 4}: {4, 11, func(b, raw []byte) []byte {
		return strconv.AppendInt(b, int64(int32(binary.LittleEndian.Uint32(raw))), 10)
	}},
	{'i', 8}: {8, 20, func(b, raw []byte) []byte { return strconv.AppendInt(b, int64(binary.LittleEndian.Uint64(raw)), 10) }},
	{'u', 1}: {1, 3, func(b, raw []byte) []byte { return strconv.AppendUint(b, uint64(raw[0]), 10) }},
	{'u', 2}: {2, 5, func(b, raw []byte) []byte { return strconv.AppendUint(b, uint64(binary.LittleEndian.Uint16(raw)), 10) }},
	{'u', 4}: {4, 10, func(b, raw []byte) []byte { return strconv.AppendUint(b, uint64(binary.LittleEndian.Uint32(raw)), 10) }},
	{'u', 8}: {8, 20, func(b, raw []byte) []byte { return strconv.AppendUint(b, binary.LittleEndian.Uint64(raw), 10) }},
	{'f', 2}: {2, 25, func(b, raw []byte) []byte { return appendFloat(b, half(binary.LittleEndian.Uint16(raw))) }},
	{'f', 4}: {4, 25, func(b, raw []byte) []byte {
		return appendFloat(b, float64(math.Float32frombits(binary.LittleEndian.Uint32(raw))))
	}},
	{'f', 8}: {8, 25, func(b, raw []byte) []byte {
		return appendFloat(b, math.Float64frombits(binary.LittleEndian.Uint64(raw)))
	}},
}

// Text is the JSON of a value. A *ProtocolError says what is wrong with it; JSON is passed as it is.
func (k Kind) Text(raw []byte) (json.RawMessage, error) {
	switch k {
	case JSON:
		return raw, nil
	case Bytes:
		size := base64.StdEncoding.EncodedLen(len(raw)) + 2
		if size > maxText {
			return nil, broken("a value of %d bytes would be %d as base64; at most %d are allowed", len(raw), size, maxText)
		}
		b := append(make([]byte, 0, size), '"')
		b = base64.StdEncoding.AppendEncode(b, raw)
		return append(b, '"'), nil
	case Array:
		return arrayText(raw)
	}
	return nil, broken("a value is of kind %d; kinds are 0 to %d", int(k), int(Array))
}

// arrayText reads the description: the type's letter and size, the number of dimensions and a zero, each a byte, then the
// dimensions, each a uint64.
func arrayText(raw []byte) (json.RawMessage, error) {
	if len(raw) < 4 || raw[2] == 0 || len(raw) < 4+8*int(raw[2]) {
		return nil, broken("an array of %d bytes has no whole description", len(raw))
	}
	e, ok := elements[[2]byte{raw[0], raw[1]}]
	if !ok {
		return nil, broken("an array is of the unknown type %q", raw[:2])
	}
	shape, data := make([]int, raw[2]), raw[4+8*int(raw[2]):]
	// Every dimension but the last adds lists, which take text even where they are empty.
	lists, count := 1, 1
	for i := range shape {
		n := binary.LittleEndian.Uint64(raw[4+8*i:])
		if n > maxText || int(n)*count > maxText {
			return nil, broken("an array has %d times %d parts, which is more than any value may have", count, n)
		}
		if shape[i] = int(n); i > 0 {
			lists += count
		}
		count *= int(n)
	}
	if count*e.size != len(data) {
		return nil, broken("an array of %v numbers of %d bytes has %d bytes", shape, e.size, len(data))
	}
	if size := count*(e.width+1) + lists*3; size > maxText {
		return nil, broken("an array of %v numbers might take %d bytes as JSON; at most %d are allowed", shape, size, maxText)
	}
	b, rest := e.list(make([]byte, 0, count*min(e.width+1, 20)+lists*3), shape, data)
	if len(rest) > 0 {
		return nil, broken("an array of %v numbers leaves %d bytes", shape, len(rest))
	}
	return b, nil
}

// list writes the first of the arrays of this shape that lie in data.
func (e element) list(b []byte, shape []int, data []byte) (text, rest []byte) {
	b = append(b, '[')
	for i := range shape[0] {
		if i > 0 {
			b = append(b, ',')
		}
		if len(shape) > 1 {
			b, data = e.list(b, shape[1:], data)
		} else {
			b, data = e.text(b, data), data[e.size:]
		}
	}
	return append(b, ']'), data
}

// appendFloat writes a number as Python does: the shortest digits that round-trip, with a point or an exponent.
func appendFloat(b []byte, x float64) []byte {
	switch size := math.Abs(x); {
	case math.IsNaN(x):
		return append(b, `"NaN"`...)
	case x > math.MaxFloat64:
		return append(b, `"Infinity"`...)
	case x < -math.MaxFloat64:
		return append(b, `"-Infinity"`...)
	case size >= 1e16 || size < 1e-4 && size > 0:
		return strconv.AppendFloat(b, x, 'e', -1, 64)
	case x == math.Trunc(x):
		return append(strconv.AppendFloat(b, x, 'f', -1, 64), ".0"...)
	}
	return strconv.AppendFloat(b, x, 'f', -1, 64)
}

// half is the value of a 16-bit float.
func half(bits uint16) float64 {
	exponent, fraction := int(bits>>10&0x1f), float64(bits&0x3ff)
	var x float64
	switch exponent {
	case 0:
		x = math.Ldexp(fraction, -24)
	case 0x1f:
		if x = math.Inf(1); fraction != 0 {
			return math.NaN()
		}
	default:
		x = math.Ldexp(1024+fraction, exponent-25)
	}
	if bits>>15 != 0 {
		x = -x
	}
	return x
}

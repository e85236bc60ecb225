package arrays

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
)

// The first byte of a value says what follows it. They are kinds of the wire.
const (
	// OneArray is an array.
	OneArray = 2
	// Mixed is JSON with arrays in it.
	Mixed = 3
)

// maxText is the most bytes of JSON that a value may become.
const maxText = 1 << 30

// Value is arrays and the JSON around them: Texts[0], Arrays[0], Texts[1] and so on.
type Value struct {
	Texts  [][]byte
	Arrays []Array
}

// Parse reads a value, which keeps the memory.
func Parse(value []byte) (Value, error) {
	if len(value) == 0 {
		return Value{}, fmt.Errorf("a value of arrays has no byte")
	}
	switch value[0] {
	case OneArray:
		array, err := parseArray(value[1:])
		if err != nil {
			return Value{}, err
		}
		return Value{[][]byte{nil, nil}, []Array{array}}, array.fits(0)
	case Mixed:
		return parseMixed(value[1:])
	}
	return Value{}, fmt.Errorf("a value of arrays begins with the byte %d", value[0])
}

// parseMixed reads pieces behind their sizes as uint64: text, array, text and so on.
func parseMixed(data []byte) (v Value, err error) {
	size := 0
	for n := 0; len(data) > 0; n++ {
		if len(data) < 8 || binary.LittleEndian.Uint64(data) > uint64(len(data)-8) {
			return v, fmt.Errorf("piece %d of a value is cut off", n)
		}
		end := 8 + int(binary.LittleEndian.Uint64(data))
		piece := data[8:end:end]
		if data = data[end:]; n%2 == 0 {
			v.Texts = append(v.Texts, piece)
			size += len(piece)
			continue
		}
		array, err := parseArray(piece)
		if err != nil {
			return v, err
		}
		if err := array.fits(size); err != nil {
			return v, err
		}
		size += array.width()
		v.Arrays = append(v.Arrays, array)
	}
	if len(v.Texts) != len(v.Arrays)+1 {
		return v, fmt.Errorf("a value has %d texts around %d arrays", len(v.Texts), len(v.Arrays))
	}
	return v, nil
}

// Check says what is wrong with a value, or nil.
func Check(value []byte) error {
	v, err := Parse(value)
	if err != nil || value[0] == OneArray {
		return err
	}
	if !json.Valid(v.Join(nil, func(b []byte, _ Array) []byte { return append(b, "[]"...) })) {
		return fmt.Errorf("the text around the arrays of a value is not JSON: %.60q", v.Texts[0])
	}
	return nil
}

// Text is the JSON that a value stands for.
func Text(value []byte) (json.RawMessage, error) {
	v, err := Parse(value)
	if err != nil {
		return nil, err
	}
	size := 0
	for _, text := range v.Texts {
		size += len(text)
	}
	for _, a := range v.Arrays {
		if a.Type == 'f' {
			size += a.width() / 2 // few need all digits
		} else {
			size += a.width()
		}
	}
	return v.Join(make([]byte, 0, size), func(b []byte, a Array) []byte { return a.AppendText(b) }), nil
}

// Outline is the JSON of a value, for people, with the type and shape alone of arrays.
func Outline(value []byte) []byte {
	v, _ := Parse(value) // nothing, of one that is not sound
	return v.Join(nil, func(b []byte, a Array) []byte {
		b = fmt.Appendf(b, "array %c%d ", a.Type, a.Size)
		for i, n := range a.Shape {
			if i > 0 {
				b = append(b, 'x')
			}
			b = strconv.AppendInt(b, int64(n), 10)
		}
		return b
	})
}

// Join adds the texts to b, and what write adds for each array between them.
func (v Value) Join(b []byte, write func([]byte, Array) []byte) []byte {
	for i, text := range v.Texts {
		if i > 0 {
			b = write(b, v.Arrays[i-1])
		}
		b = append(b, text...)
	}
	return b
}

package arrays

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
)

// Array is numbers as bytes, little-endian and row by row.
type Array struct {
	// Type is b (bool), i and u (integers) or f (floats), Size the bytes of one number.
	Type  byte
	Size  int
	Shape []int
	Data  []byte
}

// widths are the most bytes that a number takes as JSON, by the letter and the size that
// NumPy gives its type.
var widths = map[[2]byte]int{
	{'b', 1}: 5,
	{'i', 1}: 4, {'i', 2}: 6, {'i', 4}: 11, {'i', 8}: 20,
	{'u', 1}: 3, {'u', 2}: 5, {'u', 4}: 10, {'u', 8}: 20,
	{'f', 2}: 14, {'f', 4}: 25, {'f', 8}: 25,
}

// appendNumber adds the first number of data.
func (a Array) appendNumber(b, data []byte) []byte {
	var raw [8]byte
	copy(raw[:], data[:a.Size])
	word := binary.LittleEndian.Uint64(raw[:])
	switch {
	case a.Type == 'b':
		return strconv.AppendBool(b, word != 0)
	case a.Type == 'u':
		return strconv.AppendUint(b, word, 10)
	case a.Type == 'i':
		unused := 64 - 8*a.Size
		return strconv.AppendInt(b, int64(word<<unused)>>unused, 10)
	case a.Size == 2:
		return append(b, HalfText(uint16(word))...)
	case a.Size == 4:
		return AppendFloat(b, float64(math.Float32frombits(uint32(word))), 32)
	}
	return AppendFloat(b, math.Float64frombits(word), 64)
}

// parseArray reads the type's letter and size, the number of dimensions and a zero, each
// a byte, the dimensions, each a uint64, and the numbers.
func parseArray(data []byte) (Array, error) {
	if len(data) < 4 || data[2] == 0 || len(data) < 4+8*int(data[2]) {
		return Array{}, fmt.Errorf("an array of %d bytes has no whole description", len(data))
	}
	if widths[[2]byte(data)] == 0 {
		return Array{}, fmt.Errorf("an array is of the unknown type %q", data[:2])
	}
	a := Array{data[0], int(data[1]), make([]int, data[2]), data[4+8*int(data[2]):]}
	count := 1
	for i := range a.Shape {
		n := binary.LittleEndian.Uint64(data[4+8*i:])
		if n > maxText || int(n)*count > maxText {
			return Array{}, fmt.Errorf("an array has %d times %d parts, which is more than any value may have", count, n)
		}
		a.Shape[i] = int(n)
		count *= int(n)
	}
	if count*a.Size != len(a.Data) {
		return Array{}, fmt.Errorf("an array of %v numbers of %d bytes has %d bytes", a.Shape, a.Size, len(a.Data))
	}
	return a, nil
}

// width is the most bytes that the array takes as JSON: numbers with a comma each, and
// lists, which take text even where they are empty.
func (a Array) width() int {
	lists, count := 1, 1
	for _, n := range a.Shape[:len(a.Shape)-1] {
		count *= n
		lists += count
	}
	return len(a.Data)/a.Size*(widths[[2]byte{a.Type, byte(a.Size)}]+1) + lists*3
}

// fits is an error where the array could become too much JSON behind so many bytes.
func (a Array) fits(before int) error {
	if size := before + a.width(); size > maxText {
		return fmt.Errorf("an array of %v numbers might take %d bytes as JSON; at most %d are allowed", a.Shape, size, maxText)
	}
	return nil
}

// AppendText adds the array as nested lists.
func (a Array) AppendText(b []byte) []byte {
	b, _ = a.list(b, a.Shape, a.Data)
	return b
}

// list writes the first of the arrays of this shape that lie in data.
func (a Array) list(b []byte, shape []int, data []byte) (text, rest []byte) {
	b = append(b, '[')
	for i := range shape[0] {
		if i > 0 {
			b = append(b, ',')
		}
		if len(shape) > 1 {
			b, data = a.list(b, shape[1:], data)
		} else {
			b, data = a.appendNumber(b, data), data[a.Size:]
		}
	}
	return append(b, ']'), data
}

// Singles is an array of 16-bit floats as one of 32-bit floats.
func (a Array) Singles() Array {
	b := make([]byte, 0, 2*len(a.Data))
	for i := 0; i < len(a.Data); i += 2 {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(half(binary.LittleEndian.Uint16(a.Data[i:])))))
	}
	a.Size, a.Data = 4, b
	return a
}

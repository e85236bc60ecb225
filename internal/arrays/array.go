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
	element
}

// element is a type of numbers: how it is written, and the most and the usual bytes of
// that.
type element struct {
	most, usual int
	text        func(b, raw []byte) []byte
}

// elements are the types by the letter and the size in bytes that NumPy gives them.
var elements = map[[2]byte]element{
	{'b', 1}: {5, 5, func(b, raw []byte) []byte { return strconv.AppendBool(b, raw[0] != 0) }},
	{'i', 1}: {4, 4, func(b, raw []byte) []byte { return strconv.AppendInt(b, int64(int8(raw[0])), 10) }},
	{'i', 2}: {6, 6, func(b, raw []byte) []byte {
		return strconv.AppendInt(b, int64(int16(binary.LittleEndian.Uint16(raw))), 10)
	}},
	{'i', 4}: {11, 11, func(b, raw []byte) []byte {
		return strconv.AppendInt(b, int64(int32(binary.LittleEndian.Uint32(raw))), 10)
	}},
	{'i', 8}: {20, 20, func(b, raw []byte) []byte { return strconv.AppendInt(b, int64(binary.LittleEndian.Uint64(raw)), 10) }},
	{'u', 1}: {3, 3, func(b, raw []byte) []byte { return strconv.AppendUint(b, uint64(raw[0]), 10) }},
	{'u', 2}: {5, 5, func(b, raw []byte) []byte { return strconv.AppendUint(b, uint64(binary.LittleEndian.Uint16(raw)), 10) }},
	{'u', 4}: {10, 10, func(b, raw []byte) []byte { return strconv.AppendUint(b, uint64(binary.LittleEndian.Uint32(raw)), 10) }},
	{'u', 8}: {20, 20, func(b, raw []byte) []byte { return strconv.AppendUint(b, binary.LittleEndian.Uint64(raw), 10) }},
	{'f', 2}: {14, 10, func(b, raw []byte) []byte { return append(b, HalfText(binary.LittleEndian.Uint16(raw))...) }},
	{'f', 4}: {25, 12, func(b, raw []byte) []byte {
		return AppendFloat(b, float64(math.Float32frombits(binary.LittleEndian.Uint32(raw))), 32)
	}},
	{'f', 8}: {25, 20, func(b, raw []byte) []byte {
		return AppendFloat(b, math.Float64frombits(binary.LittleEndian.Uint64(raw)), 64)
	}},
}

// parseArray reads the type's letter and size, the number of dimensions and a zero, each
// a byte, the dimensions, each a uint64, and the numbers.
func parseArray(data []byte) (Array, error) {
	if len(data) < 4 || data[2] == 0 || len(data) < 4+8*int(data[2]) {
		return Array{}, fmt.Errorf("an array of %d bytes has no whole description", len(data))
	}
	e, ok := elements[[2]byte{data[0], data[1]}]
	if !ok {
		return Array{}, fmt.Errorf("an array is of the unknown type %q", data[:2])
	}
	a := Array{data[0], int(data[1]), make([]int, data[2]), data[4+8*int(data[2]):], e}
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

// lists is how many lists the array is as JSON. They take text even where they are empty.
func (a Array) lists() int {
	lists, count := 1, 1
	for _, n := range a.Shape[:len(a.Shape)-1] {
		count *= n
		lists += count
	}
	return lists
}

// width is the most bytes that the array takes as JSON, likely what it mostly takes.
func (a Array) width() int  { return len(a.Data)/a.Size*(a.most+1) + a.lists()*3 }
func (a Array) likely() int { return len(a.Data)/a.Size*(a.usual+1) + a.lists()*3 }

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
			b, data = a.text(b, data), data[a.Size:]
		}
	}
	return append(b, ']'), data
}

// Singles are the numbers of an array of 16-bit floats as 32-bit floats.
func (a Array) Singles() []byte {
	b := make([]byte, 0, 2*len(a.Data))
	for i := 0; i < len(a.Data); i += 2 {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(half(binary.LittleEndian.Uint16(a.Data[i:])))))
	}
	return b
}

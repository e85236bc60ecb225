package arrays

import (
	"math"
	"strconv"
	"sync"

	"github.com/gpumux/gpumux/internal/text"
)

// AppendFloat adds a number as Python does: the fewest digits that tell it from all
// others of its size in bits, with a point or an exponent.
func AppendFloat(b []byte, x float64, bits int) []byte {
	smallest := 1e-4
	if bits == 32 {
		smallest = float64(float32(smallest)) // whose digits are these
	}
	switch size := math.Abs(x); {
	case math.IsNaN(x):
		return append(b, text.NaN...)
	case x > math.MaxFloat64:
		return append(b, text.Infinity...)
	case x < -math.MaxFloat64:
		return append(b, text.MinusInfinity...)
	case size >= 1e16 || size < smallest && size > 0:
		return strconv.AppendFloat(b, x, 'e', -1, bits)
	case x == math.Trunc(x):
		return append(strconv.AppendFloat(b, x, 'f', -1, bits), ".0"...)
	}
	return strconv.AppendFloat(b, x, 'f', -1, bits)
}

// HalfText is the 16-bit float with these bits. There are few enough for a table.
func HalfText(bits uint16) string { return halfTexts()[bits] }

var halfTexts = sync.OnceValue(func() *[1 << 16]string {
	var all [1 << 16]string
	for bits := range all {
		all[bits] = string(AppendFloat(nil, shortHalf(uint16(bits)), 64))
	}
	return &all
})

// shortHalf is the number with the fewest digits that is nearest to a 16-bit float.
func shortHalf(bits uint16) float64 {
	x := half(bits)
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return x
	}
	above := half(bits + 1)
	if math.IsInf(above, 0) {
		above = math.Copysign(1<<16, x)
	}
	low, high := math.Abs(half(bits-1)+x)/2, math.Abs(x+above)/2
	for digits := 0; ; digits++ {
		short, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'e', digits, 64), 64) // it is a number
		size := math.Abs(short)
		if size > low && size < high || bits%2 == 0 && (size == low || size == high) {
			return short
		}
	}
}

// half is the value of a 16-bit float. The exponents of those of 32 bits begin 112 lower.
func half(bits uint16) float64 {
	x := float64(math.Float32frombits(uint32(bits>>15)<<31|uint32(bits&0x7fff)<<13)) * 0x1p112
	switch size := math.Abs(x); {
	case size > 1<<16:
		return math.NaN()
	case size == 1<<16:
		return math.Inf(int(x))
	}
	return x
}

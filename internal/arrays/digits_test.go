package arrays

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/text"
)

// Every 16-bit float comes back from its digits, which are no more than it needs.
func TestDigits_Halves(t *testing.T) {
	require.Equal(t, []string{"0.1", "-65500.0", "6e-08", "6.104e-05", "1.0", text.NaN, text.Infinity, text.MinusInfinity, "-0.0", "0.3333"},
		[]string{HalfText(0x2e66), HalfText(0xfbff), HalfText(1), HalfText(0x400), HalfText(0x3c00), HalfText(0x7e01), HalfText(0x7c00),
			HalfText(0xfc00), HalfText(0x8000), HalfText(0x3555)})
	for bits := range uint32(0x7c00) {
		x, err := strconv.ParseFloat(HalfText(uint16(bits)), 64)
		require.NoError(t, err)
		nearest := bits
		for _, other := range []uint32{max(bits, 1) - 1, min(bits+1, 0x7bff)} {
			if math.Abs(x-half(uint16(other))) < math.Abs(x-half(uint16(nearest))) {
				nearest = other
			}
		}
		require.Equal(t, bits, nearest, HalfText(uint16(bits)))
	}
}

// A 32-bit float comes back also where a reader makes a 64-bit float of the digits first.
func TestDigits_Singles(t *testing.T) {
	some := []uint32{0, 1, 0x38d1b717, math.Float32bits(math.MaxFloat32), math.Float32bits(1e16)}
	for range 100_000 {
		some = append(some, rand.Uint32())
	}
	for _, bits := range some {
		text := string(AppendFloat(nil, float64(math.Float32frombits(bits)), 32))
		if text[0] == '"' {
			continue
		}
		x, err := strconv.ParseFloat(text, 64)
		require.NoError(t, err)
		require.Equal(t, bits, math.Float32bits(float32(x)), text)
	}
	require.Equal(t, "0.1", string(AppendFloat(nil, float64(float32(0.1)), 32)))
	require.Equal(t, "0.0001", string(AppendFloat(nil, float64(float32(1e-4)), 32)))
}

package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/arrays"
)

// The Python tests read the same file: the text is what Python writes of the same value.
func TestValue_GoldenTexts(t *testing.T) {
	data, err := os.ReadFile("testdata/values.json")
	require.NoError(t, err)
	var values []struct {
		Name, Hex, Text string
		Kind            Kind
	}
	require.NoError(t, json.Unmarshal(data, &values))
	require.NotEmpty(t, values)
	for _, v := range values {
		raw, err := hex.DecodeString(v.Hex)
		require.NoError(t, err)
		text, err := v.Kind.Text(raw)
		require.NoError(t, err, v.Name)
		require.Equal(t, v.Text, string(text), v.Name)
	}
}

// array is an array of one-byte numbers, or of another type, with a shape that may lie.
func array(kind string, data string, shape ...uint64) []byte {
	b := append([]byte(kind), byte(len(shape)), 0)
	for _, n := range shape {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return append(b, data...)
}

func TestValue_Empty(t *testing.T) {
	for want, shape := range map[string][]uint64{"[]": {0}, "[[],[]]": {2, 0}, "[[[],[]]]": {1, 2, 0}} {
		text, err := Array.Text(array("u\x01", "", shape...))
		require.NoError(t, err)
		require.Equal(t, want, string(text))
	}
	text, err := Bytes.Text(nil)
	require.NoError(t, err)
	require.Equal(t, `""`, string(text))
}

// pieces is a mixed value.
func pieces(all ...string) (b []byte) {
	for _, piece := range all {
		b = append(binary.LittleEndian.AppendUint64(b, uint64(len(piece))), piece...)
	}
	return b
}

// empty becomes more than half of the JSON that a value may be.
var empty = string(array("u\x01", "", 1<<28, 0))

func TestValue_Lies(t *testing.T) {
	for name, c := range map[string]struct {
		kind Kind
		raw  []byte
		want string
	}{
		"UnknownKind":    {9, nil, "of kind 9"},
		"NegativeKind":   {-1, nil, "of kind -1"},
		"NoDescription":  {Array, []byte("u"), "no whole description"},
		"NoDimension":    {Array, array("u\x01", "1"), "no whole description"},
		"HalfAShape":     {Array, array("u\x01", "", 1)[:8], "no whole description"},
		"UnknownType":    {Array, array("c\x08", "", 1), "unknown type"},
		"UnknownSize":    {Array, array("f\x03", "123", 1), "unknown type"},
		"TooFewBytes":    {Array, array("u\x01", "1", 2), "has 1 bytes"},
		"TooManyBytes":   {Array, array("f\x08", "123456789", 1), "has 9 bytes"},
		"HugeDimension":  {Array, array("u\x01", "", 1<<63), "more than any value may have"},
		"HugeProduct":    {Array, array("u\x01", "", 1<<29, 1<<29, 1<<29), "more than any value may have"},
		"EmptyLists":     {Array, array("u\x01", "", 1<<29, 0), "as JSON; at most"},
		"ManyEmptyLists": {Array, array("u\x01", "", 1<<15, 1<<15, 0), "as JSON; at most"},
		"NoPiece":        {Mixed, nil, "0 texts around 0 arrays"},
		"HalfASize":      {Mixed, []byte{1, 0, 0}, "piece 0 of a value is cut off"},
		"CutOff":         {Mixed, pieces("[", "u")[:17], "piece 1 of a value is cut off"},
		"HugePiece":      {Mixed, bytes.Repeat([]byte{0xff}, 8), "piece 0 of a value is cut off"},
		"ArrayAtTheEnd":  {Mixed, pieces("[", string(array("u\x01", "1", 1))), "1 texts around 1 arrays"},
		"ArrayInside":    {Mixed, pieces("[", "u\x01", "]"), "no whole description"},
		"ManyInside":     {Mixed, pieces("[", empty, ",", empty, "]"), "as JSON; at most"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.kind.Text(c.raw)
			var broke *ProtocolError
			require.ErrorAs(t, err, &broke)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// Whatever a process calls an array becomes JSON, or an error before it takes memory.
func FuzzValue_Array(f *testing.F) {
	f.Add(array("f\x08", "12345678", 1))
	f.Add(array("u\x01", "123456", 2, 3))
	f.Add(array("f\x02", "\x00\x7c\x00\xfc", 2, 1, 1))
	f.Fuzz(func(t *testing.T, raw []byte) {
		text, err := Array.Text(raw)
		if err == nil && len(text) < 1<<20 {
			require.True(t, json.Valid(text), "%.100q", text)
		}
	})
}

func FuzzValue_Mixed(f *testing.F) {
	f.Add(pieces(`{"a":`, string(array("f\x04", "1234", 1)), "}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		value := (&Record{Kind: Mixed, Value: raw}).Arrays()
		arrays.Outline(value) // of any bytes, as of a fault's item
		if text, err := Mixed.Text(raw); arrays.Check(value) == nil && len(text) < 1<<20 {
			require.NoError(t, err)
			require.True(t, json.Valid(text), "%.100q", text)
		}
	})
}

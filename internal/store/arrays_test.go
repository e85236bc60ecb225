package store

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// bytesArray is a value that is an array of n bytes; some are line breaks.
func bytesArray(n int) []byte {
	b := append([]byte("\x02u\x01\x01\x00"), byte(n), byte(n>>8), byte(n>>16), 0, 0, 0, 0, 0)
	return append(b, strings.Repeat("\x07\x0a", n)[:n]...)
}

// Arrays lie as bytes in parts and in the results file, and readers get JSON.
func TestArrays_AreStoredAsBytes(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		large := bytesArray((64 << 10))
		results := []gpumux.Result{
			{Index: 0, Arrays: bytesArray(2), Printed: "said \"arrays\":\""},
			{Index: 1, Value: json.RawMessage(`{"arrays":"x"}`)},
			{Index: 2, Arrays: large, Printed: "much"},
			fault(3, gpumux.FaultCrash),
		}
		name := writePart(t, s, "m.parts", results...)
		text := get(t, s, name.key("m.parts"))
		lines := strings.SplitAfter(text[headBytes:], "\n")
		require.Equal(t, "{\"index\":0,\"arrays\":\"0000000016\x0f\x02u\x01\x01\x00\x02\x00\x00\x00\x00\x00\x00\x00\x07\x00\",\"output\":\"said \\\"arrays\\\":\\\"\"}"+"\n", lines[0])

		merged, err := s.Merge(t.Context(), contract.MergeInput{Parts: "m.parts", Output: "m", Items: 4})
		require.NoError(t, err)
		require.EqualValues(t, 3, merged.Succeeded)
		require.Equal(t, text[headBytes:], get(t, s, "m"))
		want := append([]gpumux.Result{}, results...)
		want[0].Value, want[0].Arrays = json.RawMessage("[7,10]"), nil
		want[2].Value, want[2].Arrays = json.RawMessage("["+strings.Repeat("7,10,", 32<<10)[:5*32<<10-1]+"]"), nil
		var read, stored []gpumux.Result
		for line, err := range s.Lines(t.Context(), "m") {
			require.NoError(t, err)
			r, err := parseResult(line)
			require.NoError(t, err)
			read = append(read, r)
		}
		for _, line := range lines[:4] {
			r, err := parseStored([]byte(line))
			require.NoError(t, err)
			stored = append(stored, r)
		}
		require.Equal(t, want, read)
		require.Equal(t, results, stored)
		for i, line := range lines[:4] {
			plain, err := plainLine([]byte(line))
			require.NoError(t, err)
			var r gpumux.Result
			require.NoError(t, json.Unmarshal(plain, &r))
			require.Equal(t, want[i], r)
			r, err = parseStored([]byte(line))
			require.NoError(t, err)
			require.Equal(t, results[i], r)
		}
	})
}

func TestArrays_RefusesWhatIsWrong(t *testing.T) {
	s := open(t, "mem://")
	mixed := func(text string) []byte { return append([]byte{3, byte(len(text)), 0, 0, 0, 0, 0, 0, 0}, text...) }
	for want, r := range map[string]gpumux.Result{
		"has no whole description":  {Arrays: bytesArray(2)[:7]},
		"either a value or a":       {Arrays: bytesArray(2), Value: json.RawMessage("1")},
		"either a value or a fault": {Arrays: bytesArray(2), Fault: &gpumux.Fault{Kind: gpumux.FaultCrash}},
		"begins with the byte 9":    {Arrays: []byte{9}},
		"is not JSON":               {Arrays: mixed("]")},
	} {
		require.ErrorContains(t, s.WritePart(t.Context(), "p", []gpumux.Result{r}), want)
	}
	for _, line := range []string{`{"index":0,"arrays":"*"}`, `{"index":0,"arrays":""}`, `{"index":0,"arrays":"0000000000"}`,
		"{\"index\":0,\"arrays\":\"0000000002\x01\x02\"}", "{\"index\":0,\"arrays\":\"0000000004\x01\x02\"}",
		"{\"index\":0,\"arrays\":\"0000000002\x02\x02\"}"} {
		_, err := plainLine([]byte(line))
		require.ErrorContains(t, err, "not a result")
		_, err = parseResult([]byte(line))
		require.Error(t, err)
	}
}

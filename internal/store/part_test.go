package store

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
)

func value(index int64, text string) gpumux.Result {
	return gpumux.Result{Index: index, Value: json.RawMessage(text)}
}

func fault(index int64, kind gpumux.FaultKind) gpumux.Result {
	return gpumux.Result{Index: index, Fault: &gpumux.Fault{Kind: kind, Message: "a <b> & c"}}
}

// writePart stores results as one part.
func writePart(t testing.TB, s *Store, parts string, results ...gpumux.Result) partName {
	a := folderOf(t, s, parts).Append()
	for _, r := range results {
		require.NoError(t, a.Add(r))
	}
	require.NoError(t, a.Flush(t.Context()))
	return partName{writer: a.name.writer}
}

// resultsOf reads a part.
func resultsOf(t testing.TB, s *Store, key string) (all []gpumux.Result) {
	text := get(t, s, key)
	require.Greater(t, len(text), headBytes)
	h, err := parsePartHead([]byte(text[:headBytes]))
	require.NoError(t, err)
	require.EqualValues(t, len(text)-headBytes, h.Bytes)
	for line := range strings.Lines(text[headBytes:]) {
		r, err := parseResult([]byte(line))
		require.NoError(t, err)
		all = append(all, r)
	}
	require.Len(t, all, int(h.Items))
	return all
}

func TestPart_Lines(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		results := []gpumux.Result{
			value(1203, "null"),
			{Index: 1200, Value: json.RawMessage("{\n \"index\": 7,\r\n\"fault\": \"<é>\"}"), Printed: "a\n\"b\" <c>\xff"},
			fault(1201, gpumux.FaultDeviceOOM),
		}
		results[1].Key, results[2].Key, results[2].Item = json.RawMessage("[1,\n2]"), json.RawMessage("null"), json.RawMessage(`{"a":1}`)
		name := writePart(t, s, "maps/m.parts", results...)
		key := "maps/m.parts/" + name.String()
		require.EqualValues(t, 1203, results[0].Index, "the caller's slice stays as it was")
		text := get(t, s, key)
		lines := `{"index":1200,"value":{  "index": 7,  "fault": "<é>"},"output":"a\n\"b\" <c>�","key":[1, 2]}` + "\n" +
			`{"index":1201,"fault":{"kind":"device_oom","message":"a <b> & c"},"key":null,"item":{"a":1}}` + "\n" +
			`{"index":1203,"value":null}` + "\n"
		require.Equal(t, lines, text[headBytes:])
		var h partHead
		require.NoError(t, json.Unmarshal([]byte(text[:headBytes]), &h))
		require.Equal(t, partHead{Version: 1, Items: 3, First: 1200, Last: 1203, Bytes: int64(len(lines)), Sum: h.Sum}, h)
		back := resultsOf(t, s, key)
		require.Equal(t, results[2], back[1])
		require.Equal(t, results[0], back[2])
		require.Equal(t, "a\n\"b\" <c>\ufffd", back[0].Printed)
	})
}

func TestPart_RefusesWhatIsWrong(t *testing.T) {
	s := open(t, "mem://")
	for want, result := range map[string]gpumux.Result{
		"the index is negative":            value(-1, "1"),
		"must have either a value or a":    {Index: 1},
		"either a value or a fault":        {Index: 1, Value: json.RawMessage("1"), Fault: &gpumux.Fault{Kind: "crash"}},
		`the value is not JSON: "NaN"`:     value(1, "NaN"),
		`the value is not JSON: "\"\xff\"`: value(1, "\"\xff\""),
		"it has no kind":                   fault(1, ""),
	} {
		require.ErrorContains(t, s.WritePart(t.Context(), "p", []gpumux.Result{result}), want)
	}
	require.ErrorContains(t, s.WritePart(t.Context(), "../p", []gpumux.Result{value(1, "1")}), "is not a key")
	require.NoError(t, s.WritePart(t.Context(), "p", nil))
	names, err := folderOf(t, s, "p").names(t.Context())
	require.NoError(t, err)
	require.Empty(t, names, "nothing was stored, not even of what was right")
}

// since returns what Since tells and how many parts it found damaged.
func since(t *testing.T, s *Store, parts string, w Position) (found map[int64]gpumux.FaultKind, damaged int) {
	found = map[int64]gpumux.FaultKind{}
	require.NoError(t, folderOf(t, s, parts).Since(t.Context(), w, func(index int64, kind gpumux.FaultKind) { found[index] = kind }, func(err error) {
		var d *partError
		require.ErrorAs(t, err, &d)
		damaged++
	}))
	return found, damaged
}

func TestSince_TellsWhatCameAfter(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		a := folderOf(t, s, "p").Append()
		first := a.At()
		found, _ := since(t, s, "p", first)
		require.Empty(t, found)
		want := map[int64]gpumux.FaultKind{}
		for i := range int64(3 * fullItems) {
			want[i] = ""
			r := value(i, "1")
			if i%1000 == 7 {
				want[i], r = gpumux.FaultCrash, fault(i, gpumux.FaultCrash)
			}
			require.NoError(t, a.Add(r))
			if i%fullItems == fullItems-1 {
				require.NoError(t, a.Flush(t.Context()))
			}
		}
		found, damaged := since(t, s, "p", first)
		require.Equal(t, want, found)
		require.Zero(t, damaged)
		last := a.At()
		require.Equal(t, 3, last.Number)
		found, _ = since(t, s, "p", last)
		require.Empty(t, found)
		require.NoError(t, a.Add(value(1<<40, "1")))
		require.NoError(t, a.Flush(t.Context()))
		found, _ = since(t, s, "p", last)
		require.Equal(t, map[int64]gpumux.FaultKind{1 << 40: ""}, found)
		require.ErrorContains(t, folderOf(t, s, "p").Since(t.Context(), Position{Writer: "../x"}, nil, nil), "is no writer of parts")
	})
}

func TestWritten_TellsWhereLaterPartsBegin(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		f := folderOf(t, s, "p")
		all, err := f.Written(t.Context(), time.Time{})
		require.NoError(t, err)
		require.Empty(t, all, "a folder that is not there")
		one, other := f.Append(), f.Append()
		for i := range int64(fullItems + 1) {
			require.NoError(t, one.Add(value(i, "1")))
			if i == fullItems-1 {
				require.NoError(t, one.Flush(t.Context()))
			}
		}
		require.NoError(t, one.Flush(t.Context()))
		require.NoError(t, other.Add(value(fullItems+1, "1")))
		require.NoError(t, other.Flush(t.Context()))
		all, err = f.Written(t.Context(), time.Now().Add(-time.Hour))
		require.NoError(t, err)
		require.ElementsMatch(t, []Position{{one.name.writer, 0}, {other.name.writer, 0}}, all)
		all, err = f.Written(t.Context(), time.Now().Add(time.Hour))
		require.NoError(t, err)
		require.Empty(t, all)
	})
}

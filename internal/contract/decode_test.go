package contract_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// decodeMap says what is wrong with the input of a map.
func decodeMap(data []byte) error {
	var in gpumux.MapInput
	return contract.Decode(data, &in)
}

func TestDecodeMap_NamesAMistakeInWordsForUsers(t *testing.T) {
	for in, want := range map[string]string{
		`{"task":5}`:                     "task: is a number; a string belongs here",
		`{"items":"x"}`:                  "items: is a string; a list belongs here",
		`{"chunk":"ten"}`:                `chunk: is a string; a whole number belongs here`,
		`{"window":1.5}`:                 "window: 1.5 is not written as a whole number; leave out point and exponent",
		`{"attempts":1e2}`:               "attempts: 1e2 is not written as a whole number; leave out point and exponent",
		`{"chunk":99999999999999999999}`: "chunk: 99999999999999999999 is beyond all numbers that count here",
		`{"timeout":"soon"}`:             `timeout: "soon" is not a duration; write it as 30s, 5m or 2h`,
		`{"withItem":"yes"}`:             `withItem: is a string; true or false belongs here`,
		`{"range":{"step":2,"end":3}}`:   "range.step: is no field; there are start, end",
		`{"range":{"end":"3"}}`:          `range.end: is a string; a whole number belongs here`,
		`{"range":7}`:                    "range: is a number; an object belongs here",
		`{"ladder":["gpu",7]}`:           "ladder[1]: is a number; a string belongs here",
		`{"items":[1],"atempts":3}`:      "atempts: is no field; there are task, ",
		`{"Task":"f"}`:                   "Task: is no field; there are task, ",
		`{"items":[1],"carry":{}}`:       "carry: is no field; there are task, ",
		` [1]`:                           "input: is a list; an object belongs here",
		`null`:                           "input: is nothing; an object belongs here",
		`{"task":`:                       "input: is not JSON: byte 8 of 8 makes no sense",
		`{"task":"f","items":[],"chunk":-1,"priority":9}`: "chunk: -1 is outside 0 (automatic) to 65536; priority: 9 is outside 1 (first) to 5 (last)",
	} {
		err := decodeMap([]byte(in))
		var bad *gpumux.InputError
		require.ErrorAs(t, err, &bad)
		require.ErrorContains(t, err, ": "+want)
		require.NotRegexp(t, `json:|Go |unmarshal|struct|int64`, err.Error())
	}
}

func TestDecodeMap_TakesWhatFits(t *testing.T) {
	in := gpumux.MapInput{Task: "f", Range: &gpumux.Range{Start: -3, End: 9}, Ladder: []string{"a"}, Timeout: 1e9}
	data, err := json.Marshal(in)
	require.NoError(t, err)
	var same, odd gpumux.MapInput
	require.NoError(t, contract.Decode(data, &same))
	require.Equal(t, in, same)
	require.NoError(t, contract.Decode([]byte(` { "task" : "f" , "items" : [ [ ] , { } , null, "\\\"" ] , "timeout" : null, "chunk":null } `), &odd))
	require.Equal(t, []json.RawMessage{json.RawMessage("[ ]"), json.RawMessage("{ }"), json.RawMessage("null"), json.RawMessage(`"\\\""`)}, odd.Items)
}

// What an input says costs no memory before it was checked.
func TestDecodeMap_TakesLittleMemory(t *testing.T) {
	for name, in := range map[string]string{
		"long":           `{"items":["` + strings.Repeat("x", maxInput) + `"]}`,
		"brackets":       `{"items":` + strings.Repeat(`[`, maxInput/2-20) + strings.Repeat(`]`, maxInput/2-20) + `}`,
		"items":          `{"items":[0` + strings.Repeat(`,0`, maxInput/2-20) + `]}`,
		"wrong items":    `{"ladder":[0` + strings.Repeat(`,0`, maxInput/2-20) + `]}`,
		"unknown fields": `{` + strings.Repeat(`"a":0,`, maxInput/6-20) + `"a":0}`,
		"wrong fields":   `{` + strings.Repeat(`"task":0,`, maxInput/9-20) + `"task":0}`,
	} {
		t.Run(name, func(t *testing.T) {
			data := []byte(in)
			var err error
			took := taken(func() { err = decodeMap(data) })
			require.Error(t, err)
			require.Less(t, len(err.Error()), 16<<10)
			require.Less(t, took, bound(data))
		})
	}
}

func FuzzDecodeMap(f *testing.F) {
	for _, in := range []string{
		`{"task":"f","items":[1,{"a":[]}],"range":{"start":0,"end":9},"ladder":["gpu"],"timeout":"3s","chunk":5}`,
		`[]`, `null`, `"\ud800"`, `{"a":{"b":[[[{}]]]}}`, `{"source":"\u0000"}`,
	} {
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var err error
		if took := taken(func() { err = decodeMap(data) }); took > bound(data) {
			t.Errorf("it took %d bytes", took)
		}
		if err != nil && strings.Contains(err.Error(), "json: ") {
			t.Error(err)
		}
	})
}

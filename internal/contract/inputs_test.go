package contract_test

import (
	"encoding/json"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// inputs are all that one part of gpumux sends to another.
var inputs = map[string]any{
	"Chunk": contract.Chunk{Task: "f", Work: contract.Work{Runs: contract.Runs{{Start: 3, End: 4}}},
		Items: []json.RawMessage{json.RawMessage(`{"a":[1,"]}\""]}`)}, Parts: "p"},
	"EditionInput": contract.EditionInput{Task: "f"},
	"IndexInput":   contract.IndexInput{Source: "a", Index: "b"},
	"PartsInput":   contract.PartsInput{Parts: "a"},
	"ListInput":    contract.ListInput{Parts: "a", Runs: contract.Runs{{End: 1}}},
	"MergeInput":   contract.MergeInput{Parts: "a", Output: "b"},
	"WatchInput":   contract.WatchInput{Once: true},
	"Handoff": contract.Handoff{Input: contract.Input{Task: "f", Range: &gpumux.Range{End: 4}, Ladder: []string{"a", "b"}}, Carry: &contract.Carry{
		Items: 4, Stages: []contract.StageCarry{{Todo: []contract.Piece{{Work: contract.Work{Runs: contract.Runs{{Start: 1, End: 4}}}, Rung: 1}}, Slots: map[string]int{"w": 3}}}}},
}

// decode reads an input of one kind.
func decode(kind string, data []byte) (any, error) {
	in := reflect.New(reflect.TypeOf(inputs[kind]))
	err := contract.Decode(data, in.Interface())
	return in.Elem().Interface(), err
}

// What a newer release adds to an input is left out.
func TestDecode_IgnoresWhatItDoesNotKnow(t *testing.T) {
	for kind, in := range inputs {
		data, err := json.Marshal(in)
		require.NoError(t, err)
		same, err := decode(kind, data)
		require.NoError(t, err, "%s", data)
		require.Equal(t, in, same)

		var fields map[string]any
		require.NoError(t, json.Unmarshal(data, &fields))
		fields["new"] = []any{map[string]any{"from": "a newer release"}}
		if carried, is := fields["input"].(map[string]any); is {
			carried["new"] = true
		}
		data, _ = json.Marshal(fields)
		same, err = decode(kind, data)
		require.NoError(t, err, "a field that is not known is left out: %s", data)
		require.Equal(t, in, same)
	}
}

func TestDecode_RefusesWhatCannotBe(t *testing.T) {
	for name, c := range map[string]struct{ kind, in, want string }{
		"a list":         {"Chunk", ` [1]`, "input: JSON array does not belong here"},
		"no JSON":        {"Chunk", `{"runs":`, "input: is not JSON: byte 8 of 8 makes no sense"},
		"a wrong type":   {"Chunk", `{"task":5}`, "task: JSON number does not belong here"},
		"large number":   {"Chunk", `{"end":99999999999999999999}`, "end: JSON number 99999999999999999999 does not belong here"},
		"endless chunk":  {"Chunk", `{"range":{"start":0,"end":1099511627776},"runs":[0,1099511627776]}`, "runs: a chunk of 1099511627776 items; it has 1 to 65536"},
		"backward chunk": {"Chunk", `{"items":[1],"list":{"url":"a","index":"b","items":9},"start":5,"end":1}`, "runs: a chunk of -4 items; it has 1 to 65536"},
		"nothing to run": {"Chunk", `{"runs":[0,1]}`, "items: give one of items, source, range and values"},
		"too few items":  {"Chunk", `{"items":[1],"runs":[0,2]}`, "items: a chunk of 2 items carries 1"},
		"odd runs":       {"Chunk", `{"items":[1],"runs":[0,1,2]}`, "items are a list of numbers"},
		"no state":       {"Handoff", `{"input":{"task":"f","items":[1]}}`, "carry: is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decode(c.kind, []byte(c.in))
			var bad *gpumux.InputError
			require.ErrorAs(t, err, &bad)
			require.ErrorContains(t, err, c.want)
			require.NotRegexp(t, `json:|Go |unmarshal|struct|int64`, err.Error())
		})
	}
}

const maxInput = 4 << 20

// taken is how many bytes f allocates.
func taken(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// bound is the most that reading an input may allocate, thrown away parts included.
func bound(data []byte) uint64 { return 64<<20 + 16*uint64(len(data)) }

func FuzzDecode(f *testing.F) {
	for _, in := range inputs {
		data, err := json.Marshal(in)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Add([]byte(`{"contract":"x","peak":{"first":3,"counts":[1,2]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for kind := range inputs {
			var err error
			if took := taken(func() { _, err = decode(kind, data) }); took > bound(data) {
				t.Errorf("%s took %d bytes", kind, took)
			}
			if err != nil && strings.Contains(err.Error(), "json: ") {
				t.Errorf("%s: %v", kind, err)
			}
		}
	})
}

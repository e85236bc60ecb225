package gpumux_test

import (
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
)

// maxInput is the most bytes of an input.
const maxInput = 4 << 20

// decode reads the input of one kind and says what is wrong with it.
var decode = map[string]func([]byte) error{
	"MapInput":    decoder[gpumux.MapInput],
	"Chunk":       decoder[contract.Chunk],
	"IndexInput":  decoder[contract.IndexInput],
	"PartsInput":  decoder[contract.PartsInput],
	"ListInput":   decoder[contract.ListInput],
	"PartInput":   decoder[contract.PartInput],
	"MergeInput":  decoder[contract.MergeInput],
	"ReduceInput": decoder[contract.ReduceInput],
	"Carry":       decoder[contract.Carry],
}

func decoder[In interface{ Validate() error }](data []byte) error {
	var in In
	return gpumux.Decode(data, &in)
}

func TestDecode_NamesEveryMistakeInWordsForUsers(t *testing.T) {
	for name, c := range map[string]struct {
		kind, in string
		want     []string
	}{
		"types": {"MapInput", `{"task":5,"items":"x","chunk":"ten","window":1.5,"timeout":"soon","attempts":1e2,"failFast":"yes","priority":9}`, []string{
			"task: 5 is a number; a string belongs here", `items: "x" is a string; a list belongs here`,
			`chunk: "ten" is a string; a whole number belongs here`, "window: 1.5 is not written as a whole number; leave out point and exponent",
			`timeout: "soon" is not a duration; write it as 30s, 5m or 2h`, "attempts: 1e2 is not written as a whole number; leave out point and exponent",
			`failFast: "yes" is a string; true or false belongs here`, "priority: 9 is outside 1 (first) to 5 (last)",
		}},
		"nested":          {"MapInput", `{"task":"f","range":{"step":2,"end":"3"},"ladder":["gpu",7]}`, []string{"range.step: is no field; there are start, end", `range.end: "3" is a string; a whole number belongs here`, "ladder[1]: 7 is a number; a string belongs here"}},
		"range of one":    {"MapInput", `{"task":"f","range":7}`, []string{"range: 7 is a number; an object belongs here"}},
		"state":           {"MapInput", `{"task":"f","items":[1],"carry":{}}`, []string{"carry: is no field; there are task, "}},
		"list":            {"MapInput", ` [1]`, []string{"input: [1] is a list; an object belongs here"}},
		"null":            {"MapInput", `null`, []string{"input: is null; an object belongs here"}},
		"no JSON":         {"MapInput", `{"task":`, []string{"input: is not JSON: byte 8 of 8 makes no sense"}},
		"large number":    {"Chunk", `{"items":[1],"list":{"url":"a","index":"b","items":1},"start":0,"end":99999999999999999999}`, []string{"end: 99999999999999999999 is beyond all numbers that count here"}},
		"endless chunk":   {"Chunk", `{"range":{"start":0,"end":1099511627776},"runs":[0,1099511627776]}`, []string{"runs: a chunk of 1099511627776 items; it has 1 to 65536", "runs: there is no item 1099511627775"}},
		"backward chunk":  {"Chunk", `{"items":[1],"list":{"url":"a","index":"b","items":9},"start":5,"end":1}`, []string{"start: items 5 to 1 do not lie within 0 to 1000000000000"}},
		"nothing to run":  {"Chunk", `{"runs":[0,1]}`, []string{"items: give one of items, source and range"}},
		"beyond a range":  {"Chunk", `{"range":{"start":7,"end":9},"runs":[2,1]}`, []string{"range: 7 to 9 has no item 2"}},
		"beyond a source": {"Chunk", `{"source":{"url":"a","index":"b","items":2},"runs":[2,1]}`, []string{"source.items: 2 has no item 2"}},
		"too few items":   {"Chunk", `{"items":[1],"runs":[0,2]}`, []string{"items: a chunk of 2 items carries 1"}},
		"no parts":        {"PartsInput", `{}`, []string{"parts: is missing; give a key of the store"}},
		"a key too long":  {"PartsInput", `{"parts":"` + strings.Repeat("a", 5000) + `"}`, []string{"parts: has 5000 bytes, more than 4000"}},
		"unsorted":        {"PartInput", `{"parts":"a","results":[{"index":2,"value":1},{"index":1,"value":1},{"index":3}]}`, []string{"results[1]: item 1 comes after item 2", "results[2]: has neither a value nor a fault"}},
		"many to merge":   {"MergeInput", `{"parts":"a","output":"b","items":-1}`, []string{"items: -1 is outside 0 to"}},
		"two to reduce":   {"ReduceInput", `{"reduce":"sum","results":[{"index":0,"value":1}],"partials":[{"start":0,"end":1,"count":1}]}`, []string{"source: give only one of", "partials[0].value: is missing"}},
		"places of none":  {"Chunk", `{"items":[1],"runs":[0,1],"start":0,"end":1}`, []string{"start: 0 to 1 are places of no list"}},
		"odd runs":        {"Chunk", `{"items":[1],"runs":[0,1,2]}`, []string{"runs: items are a list of numbers"}},
		"endless list":    {"ListInput", `{"parts":"a","runs":[0,99999999999]}`, []string{"runs: 99999999999 items are more than"}},
		"a rung":          {"Carry", `{"todo":[{"runs":[0,1],"rung":77}],"items":1}`, []string{"todo[0].rung: there is no rung 77"}},
		"endless slots":   {"Carry", `{"todo":[],"slots":{"w":9223372036854775807}}`, []string{"slots: w has 9223372036854775807"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := decode[c.kind]([]byte(c.in))
			var bad *gpumux.InputError
			require.ErrorAs(t, err, &bad)
			var got []string
			for _, p := range bad.Problems {
				got = append(got, p.Field+": "+p.Message)
			}
			for _, want := range c.want {
				require.Contains(t, strings.Join(got, "\n"), want)
			}
			require.NotRegexp(t, `json:|Go |unmarshal|struct|int64`, err.Error())
			if c.kind == "MapInput" {
				require.Len(t, got, len(c.want), "%q", got)
			}
		})
	}
}

func TestDecode_TakesWhatFits(t *testing.T) {
	for kind, in := range map[string]any{
		"MapInput":    gpumux.MapInput{Task: "f", Range: &gpumux.Range{Start: -3, End: 9}, Ladder: []string{"a"}, Timeout: 1e9},
		"Chunk":       contract.Chunk{Task: "f", Work: contract.Work{Runs: gpumux.Runs{{Start: 3, End: 4}}}, Items: []json.RawMessage{json.RawMessage(`{"a":[1,"]}\""]}`)}, Parts: "p"},
		"IndexInput":  contract.IndexInput{Source: "a", Index: "b"},
		"PartsInput":  contract.PartsInput{Parts: "a"},
		"PartInput":   contract.PartInput{Parts: "a", Results: []gpumux.Result{{Value: json.RawMessage("null")}, {Index: 1, Fault: &gpumux.Fault{Kind: gpumux.Crash}}}},
		"MergeInput":  contract.MergeInput{Parts: "a", Output: "b"},
		"ReduceInput": contract.ReduceInput{Reduce: "sum", Span: gpumux.Span{End: 7}, Source: &gpumux.Source{URL: "u", Index: "i", Items: 7}},
		"Carry":       contract.Carry{Items: 4, Todo: []contract.Piece{{Work: contract.Work{Runs: gpumux.Runs{{Start: 1, End: 4}}}, Rung: 1}}, Slots: map[string]int{"w": 3}, Peak: peaks(17)},
	} {
		data, err := json.Marshal(in)
		require.NoError(t, err)
		require.NoError(t, decode[kind](data), "%s", data)
	}
	var in gpumux.MapInput
	require.NoError(t, gpumux.Decode([]byte(` { "Task" : "f" , "items" : [ [ ] , { } , "\\\"" ] , "timeout" : null, "chunk":null } `), &in))
	require.Len(t, in.Items, 3)
}

func peaks(bytes int64) *gpumux.Peaks {
	var p gpumux.Peaks
	p.Add(bytes)
	return &p
}

// What an input says costs no memory before it was checked.
func TestDecode_TakesLittleMemory(t *testing.T) {
	for name, c := range map[string]struct{ kind, in string }{
		"long":           {"MapInput", `{"items":["` + strings.Repeat("x", maxInput) + `"]}`},
		"endless":        {"Chunk", fmt.Sprintf(`{"start":0,"end":%d,"range":{"start":0,"end":%[1]d}}`, int64(math.MaxInt64))},
		"runs":           {"Chunk", `{"runs":[0` + strings.Repeat(",1", maxInput/2-20) + `]}`},
		"results":        {"PartInput", `{"parts":"a","results":[` + strings.Repeat("{},", maxInput/3-20) + `{}]}`},
		"faults":         {"PartInput", `{"parts":"a","results":[` + strings.Repeat(`{"fault":{}},`, maxInput/13-20) + `{}]}`},
		"unknown fields": {"Chunk", `{` + strings.Repeat(`"a":0,`, maxInput/6-20) + `"a":0}`},
		"wrong fields":   {"Chunk", `{` + strings.Repeat(`"map":0,`, maxInput/8-20) + `"map":0}`},
		"pieces":         {"Carry", `{"todo":[` + strings.Repeat(`{},`, maxInput/3-20) + `{}]}`},
		"slots":          {"Carry", `{"slots":{` + strings.Repeat(`"":1,`, maxInput/5-20) + `"":1}}`},
		"brackets":       {"MapInput", `{"items":` + strings.Repeat(`[`, maxInput/2-20) + strings.Repeat(`]`, maxInput/2-20) + `}`},
	} {
		t.Run(name, func(t *testing.T) {
			data := []byte(c.in)
			var err error
			took := taken(func() { err = decode[c.kind](data) })
			require.Error(t, err)
			require.Less(t, len(err.Error()), 16<<10)
			require.Less(t, took, bound(data))
		})
	}
}

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
	for _, in := range []string{
		`{"task":"f","items":[1,{"a":[]}],"range":{"start":0,"end":9},"ladder":["gpu"],"timeout":"3s","chunk":5}`,
		`{"map":"m","start":0,"end":1099511627776,"source":{"url":"u","index":"i","items":3,"bytes":9},"parts":"p"}`,
		`{"parts":"p","results":[{"index":0,"value":1},{"index":1,"fault":{"kind":"crash","message":"x"}}]}`,
		`{"reduce":"sum","start":0,"end":9,"partials":[{"start":0,"end":3,"count":1,"value":3}],"final":true}`,
		`{"todo":[{"start":0,"end":5,"rung":1,"pace":"2s"}],"items":5,"slots":{"w":2},"peak":{"first":3,"counts":[1,2]},"started":"2026-01-02T03:04:05Z"}`,
		`[]`, `null`, `"\ud800"`, `{"a":{"b":[[[{}]]]}}`, `{"source":"\u0000"}`,
	} {
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for kind, read := range decode {
			var err error
			if took := taken(func() { err = read(data) }); took > bound(data) {
				t.Errorf("%s took %d bytes", kind, took)
			}
			if err != nil && strings.Contains(err.Error(), "json: ") {
				t.Errorf("%s: %v", kind, err)
			}
		}
	})
}

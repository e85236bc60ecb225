package items

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/results"
)

// Every stretch of the values of a results file, whichever items failed.
func TestSource_TheValuesOfResults(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		var text strings.Builder
		var want []string
		for i := range 1000 {
			r := gpumux.Result{Index: int64(i), Value: json.RawMessage(fmt.Sprintf(`[%d,"%s"]`, i, strings.Repeat("x", i%300)))}
			if i%7 == 0 || i < 20 || i > 960 {
				r = gpumux.Result{Index: int64(i), Fault: &gpumux.Fault{Kind: gpumux.FaultCrash}}
			} else {
				want = append(want, string(r.Value))
			}
			line, err := results.Append(nil, r)
			require.NoError(t, err)
			text.Write(line)
		}
		put(t, s, "maps/a/results.jsonl", text.String())
		in, err := s.Sources.Find(t.Context(), gpumux.ValuesOf("maps/a/results.jsonl"), "maps/b/source.index")
		require.NoError(t, err)
		stored, err := s.Sources.Put(t.Context(), spool(t, text.String(), JSONLines))
		require.NoError(t, err)
		known, err := s.Sources.Find(t.Context(), gpumux.ValuesOf(stored.URL), "maps/c/source.index")
		require.NoError(t, err)
		for _, src := range []contract.Source{in, known} {
			require.EqualValues(t, len(want), src.Items)
			for _, stretch := range []contract.Runs{{{Start: 0, End: src.Items}}, {{Start: 100, End: 103}, {Start: 500, End: 501}}, {{Start: src.Items - 1, End: src.Items}}} {
				var got []string
				require.NoError(t, s.Sources.Pick(t.Context(), src, stretch, func(index int64, line json.RawMessage) bool {
					item, _, err := Unwrap(src, line)
					require.NoError(t, err)
					require.Equal(t, want[index], string(item))
					got = append(got, string(item))
					return true
				}))
				require.Len(t, got, int(stretch.Len()))
			}
		}
		put(t, s, "maps/d/items.jsonl", "1\n")
		_, err = s.Sources.Find(t.Context(), gpumux.ValuesOf("maps/d/items.jsonl"), "maps/d/source.index")
		var mistake *gpumux.SourceError
		require.ErrorAs(t, err, &mistake)
		require.ErrorContains(t, err, "items.jsonl:1: not a result: ")
	})
}

// The failed items of a results file are a source, where its lines have them.
func TestSource_TheFailedItemsOfResults(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		var text strings.Builder
		var want []string
		for i := range 1000 {
			r := gpumux.Result{Index: int64(i), Value: json.RawMessage("1"), Key: json.RawMessage(fmt.Sprint(-i)), Item: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))}
			if i%7 == 3 {
				r.Value, r.Fault = nil, &gpumux.Fault{Kind: gpumux.FaultCrash, Message: "it died"}
				want = append(want, fmt.Sprintf(`{"n":%d} %d`, i, -i))
			}
			line, err := results.Append(nil, r)
			require.NoError(t, err)
			text.Write(line)
		}
		put(t, s, "maps/a/results.jsonl", text.String())
		src, err := s.Sources.Find(t.Context(), gpumux.FailedOf("maps/a/results.jsonl"), "maps/b/source.index")
		require.NoError(t, err)
		require.EqualValues(t, len(want), src.Items)
		for _, stretch := range []contract.Runs{{{Start: 0, End: src.Items}}, {{Start: 100, End: 103}}} {
			require.NoError(t, s.Sources.Pick(t.Context(), src, stretch, func(index int64, line json.RawMessage) bool {
				item, key, err := Unwrap(src, line)
				require.NoError(t, err)
				require.Equal(t, want[index], fmt.Sprintf("%s %s", item, key))
				return true
			}))
		}
		put(t, s, "maps/c/results.jsonl", `{"index":0,"value":1}`+"\n"+`{"index":1,"fault":{"kind":"crash","message":"m"}}`+"\n")
		_, err = s.Sources.Find(t.Context(), gpumux.FailedOf("maps/c/results.jsonl"), "maps/c/source.index")
		require.ErrorContains(t, err, "results.jsonl:2: item 1 failed, and its result lacks it; run the map that wrote the file with withItem")
		stored, err := s.Sources.Put(t.Context(), spool(t, text.String(), JSONLines))
		require.NoError(t, err)
		known, err := s.Sources.Find(t.Context(), gpumux.FailedOf(stored.URL), "maps/d/source.index")
		require.NoError(t, err)
		require.EqualValues(t, len(want), known.Items)
	})
}

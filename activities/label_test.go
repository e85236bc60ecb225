package activities

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/recovery"
	"github.com/gpumux/gpumux/internal/results"
	"github.com/gpumux/gpumux/internal/test/storetest"
)

// ahead is a Runner that takes all items before it gives the first result, and whose
// process dies with item 2.
type ahead struct{}

func (ahead) Run(_ context.Context, call calls.Call, work calls.Work) error {
	var items []calls.Item
	for item, err := range work.Items() {
		if err != nil {
			return err
		}
		items = append(items, item)
	}
	for _, item := range items {
		if item.Index == 2 {
			return &gpumux.Fault{Kind: gpumux.FaultCrash, Op: "run", Message: "died", Alone: call.Clean}
		}
		work.Done(calls.Done{Result: gpumux.Result{Index: item.Index, Value: item.Value}})
	}
	return nil
}

func TestRunChunk_ResultsHaveTheKeysOfTheirItems(t *testing.T) {
	l := newLab(t, ahead{})
	l.env.RegisterActivityWithOptions(checked(l.pool.runChunk), activity.RegisterOptions{Name: "chunk"})
	items := []json.RawMessage{json.RawMessage(`{"id":"a"}`), json.RawMessage(`7`), json.RawMessage(`{"id":[2]}`), json.RawMessage(`{"id":null}`)}
	chunk := contract.Chunk{Items: items, Work: contract.Whole(4), Parts: "m/parts", Key: "id", WithItem: true}
	// The death of item 2 in company, then alone, then alone again.
	for range 3 {
		if _, err := l.env.ExecuteActivity("chunk", chunk); err == nil {
			break
		}
		l.env.SetHeartbeatDetails(memo{History: recovery.History{Suspects: map[int64]recovery.Suspect{2: {Alone: 1, Tries: 2}}}})
	}
	in := contract.MergeInput{Parts: "m/parts", Output: "m/results.jsonl", Items: 4}
	_, err := l.store.Merge(t.Context(), in)
	require.NoError(t, err)
	want := []string{`"a"`, "null", "[2]", "null"}
	for r, err := range storetest.Results(t.Context(), l.store, in.Output) {
		require.NoError(t, err)
		require.Equal(t, want[r.Index], string(r.Key))
		require.Equal(t, string(items[r.Index]), string(r.Item))
		require.Equal(t, r.Index == 2, r.Fault != nil)
	}
}

// The items of a map over results are the values, and its results have their keys.
func TestRunChunk_OverTheResultsOfAMap(t *testing.T) {
	l := newLab(t, echo{})
	failed := gpumux.Result{Index: 1, Fault: &gpumux.Fault{Kind: gpumux.FaultCrash, Message: "no"}}
	first := []gpumux.Result{{Value: json.RawMessage(`{"n":1}`), Key: json.RawMessage(`"a"`)}, failed,
		{Index: 2, Arrays: []byte("\x02f\x04\x01\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80\x3f\x00\x00\x00\x40"), Key: json.RawMessage(`"c"`)}}
	storetest.Write(t, l.store, "first/parts", first)
	_, err := l.store.Merge(t.Context(), contract.MergeInput{Parts: "first/parts", Output: "first/results.bytes.jsonl", Items: 3})
	require.NoError(t, err)
	l.light.Register(l.env)
	in := contract.IndexInput{Source: gpumux.ValuesOf("first/results.bytes.jsonl"), Index: "m/source.index", Key: "n"}
	encoded, err := l.env.ExecuteActivity(contract.IndexSource, in)
	require.NoError(t, err)
	var source contract.Source
	require.NoError(t, encoded.Get(&source))
	require.EqualValues(t, 2, source.Items)
	in.Key = "id"
	_, err = l.env.ExecuteActivity(contract.IndexSource, in)
	require.ErrorContains(t, err, `key: the first item has no field "id"; it has n`)

	l.env.RegisterActivityWithOptions(checked(l.pool.runChunk), activity.RegisterOptions{Name: "chunk"})
	for field, want := range map[string][]string{"": {`"a"`, `"c"`}, "n": {"1", "null"}} {
		parts := "m" + field + "/parts"
		_, err = l.env.ExecuteActivity("chunk", contract.Chunk{Source: &source, Work: contract.Whole(2), Parts: parts, Key: field})
		require.NoError(t, err)
		in, err := l.store.Folder(parts)
		require.NoError(t, err)
		tail := in.Tail(false)
		require.NoError(t, err)
		var keys, values []string
		for line, err := range tail.Lines(t.Context(), nil) {
			require.NoError(t, err)
			r, err := results.Parse(line)
			require.NoError(t, err)
			keys, values = append(keys, string(r.Key)), append(values, string(r.Value))
		}
		require.Equal(t, want, keys)
		require.Equal(t, []string{`{"n":1}`, "[1.0,2.0]"}, values)
	}
}

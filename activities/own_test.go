package activities

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/items"
	"github.com/gpumux/gpumux/internal/objects"
)

// No activity writes or deletes an object of the store itself, whoever starts it and
// however the object is named.
func TestRegister_TheStoresOwnObjectsStay(t *testing.T) {
	l := newLab(t, untouched{t})
	l.pool.Register(registry{l, "pool "})
	l.light.Register(registry{l, "light "})
	put := func(key string) {
		w, err := l.store.Objects.Create(t.Context(), key, objects.Creation{})
		require.NoError(t, err)
		_, err = io.WriteString(w, "1\n2\n")
		require.NoError(t, err)
		require.NoError(t, w.Close())
	}
	put("items.jsonl")
	put("maps/m/r.jsonl.parts/own.jsonl")
	identity, err := l.store.Identity(t.Context())
	require.NoError(t, err)
	spooled, err := items.SpoolReader(strings.NewReader("3\n4\n"), "items", items.JSONLines)
	require.NoError(t, err)
	defer spooled.Remove()
	source, err := l.store.Sources.Put(t.Context(), spooled)
	require.NoError(t, err)
	sourceKey, err := l.store.Objects.Key(source.URL)
	require.NoError(t, err)
	objects := func() (all []string) {
		for _, key := range []string{sourceKey, source.Index, "maps/m/r.jsonl.parts/own.jsonl"} {
			o, err := l.store.Objects.Read(t.Context(), key, 0, -1)
			require.NoError(t, err, key)
			data, err := io.ReadAll(o)
			require.NoError(t, err)
			require.NoError(t, o.Close())
			all = append(all, string(data))
		}
		return all
	}
	before := objects()

	for _, key := range []string{"store.json", sourceKey, source.Index, "Sources/a.jsonl", "maps/m/r.jsonl.parts/own.jsonl"} {
		for _, name := range []string{key, l.store.Objects.Locate(key)} {
			parts := contract.PartsOf(name)
			for what, in := range map[string]any{
				"pool gpumux.RunChunk":     contract.Chunk{Task: "t", Range: &gpumux.Range{End: 3}, Work: contract.Whole(3), Parts: parts},
				"light gpumux.IndexSource": contract.IndexInput{Source: "items.jsonl", Index: contract.SourceIndexOf(parts)},
				"light gpumux.FindParts":   contract.PartsInput{Parts: parts, Items: 3},
				"light gpumux.MergeParts":  contract.MergeInput{Parts: "maps/other.parts", Output: name},
				"light gpumux.WriteList":   contract.ListInput{Parts: parts, Runs: contract.Runs{{End: 3}}},
			} {
				_, err := l.env.ExecuteActivity(what, in)
				var refused *temporal.ApplicationError
				require.ErrorAs(t, err, &refused, "%s of %s", what, name)
				require.Equal(t, string(gpumux.FaultBadInput), refused.Type(), "%s of %s: %v", what, name, err)
				require.True(t, refused.NonRetryable())
			}
		}
	}
	require.Equal(t, before, objects())
	again, err := l.store.Identity(t.Context())
	require.NoError(t, err)
	require.Equal(t, identity, again)
}

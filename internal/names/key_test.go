package names_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/names"
)

func TestOutput_IsNothingOfGpumux(t *testing.T) {
	for _, good := range []string{"a", "maps/m/results.jsonl", "my/sources/a.jsonl", "sources.jsonl", "x/store.json", "file:///data/a.jsonl", "a.partsx"} {
		require.NoError(t, names.Output(good), good)
	}
	for _, reserved := range []string{"store.json", "Store.JSON", "sources", "sources/0a.jsonl", "SOURCES/a", "store.json/a", "batches/joe/a.json"} {
		require.ErrorContains(t, names.Output(reserved), "is kept for gpumux itself", reserved)
		require.ErrorContains(t, names.Writable(reserved), "is kept for gpumux itself", reserved)
		require.ErrorContains(t, names.Writable(reserved+names.PartsEnding), "is kept for gpumux itself", reserved)
	}
	for _, among := range []string{"maps/m/r.jsonl.parts/a", "a.parts", "a.PARTS/b"} {
		require.ErrorContains(t, names.Output(among), "lies in a folder of parts", among)
		require.ErrorContains(t, names.Writable("x.parts/"+among), "lies in a folder of parts", among)
	}
	require.NoError(t, names.Writable("maps/m/r.jsonl.parts/files/3/plot.png"))
}

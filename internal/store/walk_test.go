package store

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/contract"
)

func TestStore_SourceOfAFolder(t *testing.T) {
	s := open(t, "mem://", nil)
	for input, want := range map[string]string{"file:///store/a.jsonl, content 12ab": "file:///store/a.jsonl", "the range 0 to 7": ""} {
		folder := "of " + strings.ReplaceAll(input, "/", "-") + ".parts"
		_, err := folderOf(t, s, folder).claim(t.Context(), contract.Owner{Task: "f", Input: input, Items: 7})
		require.NoError(t, err)
		got, err := folderOf(t, s, folder).Source(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	got, err := folderOf(t, s, "none.parts").Source(t.Context())
	require.NoError(t, err)
	require.Empty(t, got)
}

package store

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/contract"
)

func keysIn(t *testing.T, s *Store, folder string) (keys []string) {
	for o, err := range s.Objects.Objects(t.Context(), folder) {
		require.NoError(t, err)
		require.EqualValues(t, len(o.Key), o.Bytes)
		require.WithinDuration(t, time.Now(), o.Changed, time.Minute)
		keys = append(keys, o.Key)
	}
	slices.Sort(keys)
	return keys
}

func TestStore_ListsAndDeletesFolders(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		all := []string{"maps/a/1/out.jsonl", "maps/a/1/out.jsonl.parts/p", "maps/a/10/out.jsonl", "maps/ab/1/out.jsonl"}
		for _, key := range all {
			put(t, s, key, strings.Repeat("x", len(key)))
		}
		put(t, s, "elsewhere", "elsewhere")
		require.Equal(t, all, keysIn(t, s, "maps"))
		require.Equal(t, all[:3], keysIn(t, s, "maps/a"))
		require.Empty(t, keysIn(t, s, "nothing"))
		for range 2 {
			require.NoError(t, s.Objects.DeleteAll(t.Context(), "maps/a/1"))
		}
		require.Equal(t, all[2:], keysIn(t, s, "maps"))
		require.NoError(t, s.Objects.DeleteAll(t.Context(), "maps/ab/1/out.jsonl"))
		require.Equal(t, all[2:3], keysIn(t, s, "maps"))
		require.Equal(t, "elsewhere", get(t, s, "elsewhere"))
		for _, name := range []string{"", "..", "/", "maps/../elsewhere"} {
			require.Error(t, s.Objects.DeleteAll(t.Context(), name), name)
		}
	})
}

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

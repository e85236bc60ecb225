package store

import (
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/contract"
)

func fileOf(t *testing.T, s *Store, parts string, index int64, name string) string {
	t.Helper()
	file, err := folderOf(t, s, parts).OpenFile(t.Context(), index, name)
	require.NoError(t, err)
	defer file.Close()
	text, err := io.ReadAll(file)
	require.NoError(t, err)
	return string(text)
}

func TestFiles_AreKeptAndCopied(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		for _, text := range []string{"first", "second"} {
			require.NoError(t, folderOf(t, s, "m/r.jsonl.parts").KeepFile(ctx, 7, "zażółć.txt", strings.NewReader(text), int64(len(text))))
		}
		require.Equal(t, "second", fileOf(t, s, "m/r.jsonl.parts", 7, "zażółć.txt"))
		r := value(7, "1")
		r.Files = []string{"zażółć.txt"}
		require.NoError(t, folderOf(t, s, "m/r.jsonl.parts").CopyFiles(ctx, r, folderOf(t, s, "n/r.jsonl.parts")))
		require.Equal(t, "second", fileOf(t, s, "n/r.jsonl.parts", 7, "zażółć.txt"))

		writePart(t, s, "m/r.jsonl.parts", r)
		merged, err := s.Merge(ctx, contract.MergeInput{Parts: "m/r.jsonl.parts", Output: "m/r.jsonl", Items: 0})
		require.ErrorContains(t, err, "item 7", "files are no parts: %v", merged)

		_, err = folderOf(t, s, "m/r.jsonl.parts").OpenFile(ctx, 7, "nowhere")
		require.ErrorIs(t, err, fs.ErrNotExist)
		_, err = folderOf(t, s, "m/r.jsonl.parts").OpenFile(ctx, 7, "../manifest.json")
		require.Error(t, err)
	})
}

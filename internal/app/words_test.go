package app

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a library says to do must be here word by word, or people are not told the flag.
func TestInFlags_TheLibrariesSaySo(t *testing.T) {
	var source bytes.Buffer
	require.NoError(t, filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "internal/app/") || strings.Contains(path, "internal/cli/") {
			return err
		}
		text, err := os.ReadFile(path)
		source.Write(text)
		return err
	}))
	for pair := range slices.Chunk(flagWords, 2) {
		require.Contains(t, source.String(), pair[0])
	}
	a := &App{}
	require.Equal(t, `give another --id, or that task`, a.InFlags(`give another ID, or that task`))
	require.Equal(t, `give --delimiter ';'`, a.InFlags(`give the delimiter ';'`))
}

package local_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/local"
)

// Nothing is left of a session in a folder of nobody's choice.
func TestOpen_ATemporaryFolderGoes(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	_, err := local.Open(t.Context(), local.Options{Server: noServer})
	require.ErrorIs(t, err, errAway)
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, left)
}

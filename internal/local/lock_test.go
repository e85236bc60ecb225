package local

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A map that ends removes its folder under the lock. Whoever waited for it gets a folder
// of its own, not the lock on a file that is gone.
func TestHoldFolder_OfAMapThatEnds(t *testing.T) {
	data := filepath.Join(t.TempDir(), "map-1")
	first, err := holdFolder(t.Context(), data, "map-1")
	require.NoError(t, err)
	got := make(chan *os.File, 1)
	go func() {
		hold, err := holdFolder(t.Context(), data, "map-1")
		if err != nil {
			t.Error(err)
		}
		got <- hold
	}()
	_, same, err := claimFolder(data, "map-1")
	require.ErrorContains(t, err, "this map runs already in process")
	require.True(t, same)
	require.NoError(t, removeFolder(data))
	require.NoError(t, first.Close())
	second := <-got
	require.NotNil(t, second)
	defer second.Close()
	there, err := os.Stat(filepath.Join(data, lockFile))
	require.NoError(t, err)
	mine, err := second.Stat()
	require.NoError(t, err)
	require.True(t, os.SameFile(there, mine))
	require.DirExists(t, filepath.Join(data, "store"))
}

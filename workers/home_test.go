package workers

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// An image may bring the runtime in a folder that nobody can write.
func TestWorker_AHomeWhereTheCacheCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "home"), nil, 0o600))
	t.Setenv("TMPDIR", t.TempDir())
	w := &Worker{}
	require.NoError(t, w.makeHome(dir))
	require.Equal(t, filepath.Join(os.TempDir(), fmt.Sprintf("gpumux-home-%d", os.Getuid())), w.home)
	require.NoError(t, w.makeHome(dir), "it is used again")
	require.NoError(t, os.Remove(w.home))
	require.NoError(t, os.Symlink("/etc", w.home))
	require.ErrorContains(t, w.makeHome(dir), w.home, "a link that somebody put there is no home")
}

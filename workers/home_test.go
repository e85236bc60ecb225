package workers

import (
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
	require.Equal(t, os.TempDir(), filepath.Dir(w.home))
	require.DirExists(t, w.home)
	require.Equal(t, w.home, w.scratch, "it is removed at the end")
}

package objects

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestOpen_UnwritableFolder(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	require.NoError(t, os.Chmod(dir, 0o555))
	if os.Getuid() == 0 {
		// Root can write anywhere, so this thread uses files as another user.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		require.NoError(t, unix.Setfsuid(65534))
		defer unix.Setfsuid(0)
	}
	_, err := Open(t.Context(), "file://"+dir)
	require.ErrorContains(t, err, "cannot write to the folder")
}

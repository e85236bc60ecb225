package pyruntime

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInstall_HasAllFiles(t *testing.T) {
	main, err := Install(t.TempDir())
	require.NoError(t, err)
	for _, name := range []string{"main.py", "__init__.py", "child/sitecustomize.py"} {
		require.FileExists(t, filepath.Join(filepath.Dir(main), name))
	}
}

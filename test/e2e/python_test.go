package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/test/programtest"
)

// pythonClient is the folder of the package gpumux and of its tests.
func pythonClient(t *testing.T) string {
	t.Helper()
	return filepath.Join(top(t), "clients/python")
}

func TestPython_Client(t *testing.T) {
	t.Parallel()
	binary := programtest.Binary(t)
	dir := pythonClient(t)
	modules, err := filepath.Glob(filepath.Join(dir, "tests", "test_*.py"))
	require.NoError(t, err)
	require.NotEmpty(t, modules)
	for _, module := range modules {
		name := strings.TrimSuffix(filepath.Base(module), ".py")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tests := exec.CommandContext(t.Context(), filepath.Join(venv(t), "bin", "python"), "-W", "error::ResourceWarning", "-m", "unittest", "-v", "tests."+name)
			tests.Dir = dir
			tests.Env = append(os.Environ(), "GPUMUX_BINARY="+binary, "PYTHONPATH="+dir, "PYTHONDONTWRITEBYTECODE=1",
				"XDG_STATE_HOME="+t.TempDir(), "XDG_CACHE_HOME="+t.TempDir(), "IPYTHONDIR="+t.TempDir())
			output, err := tests.CombinedOutput()
			require.NoError(t, err, "%s", output)
			require.NotContains(t, string(output), "Ran 0 tests")
		})
	}
}

package python_test

import (
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/rig"
)

func TestPython_OwnTests(t *testing.T) {
	numpy, err := exec.Command(python, "-c", "import numpy; print(numpy.__version__)").CombinedOutput()
	if err != nil {
		numpy = []byte("none; stand-ins cover its paths")
	}
	t.Logf("%s, NumPy: %s", python, numpy)
	cmd := exec.Command(python, "-W", "error", "-m", "unittest", "discover", "-s", "tests/process", "-t", ".")
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "\nOK", "%s", out)
	if skipped := regexp.MustCompile(`skipped=\d+`).Find(out); skipped != nil {
		t.Run("Skipped", func(t *testing.T) { rig.Because(t, rig.NumPy, "of Python's own tests, ", string(skipped)) })
	}
}

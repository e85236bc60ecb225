package kernelcheck

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheck_Script(t *testing.T) {
	cmd := exec.Command("python3", "-W", "error::SyntaxWarning", "test_check.py")
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "\nOK", "%s", out)
}

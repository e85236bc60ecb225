package gpucheck

import (
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheck_Scripts(t *testing.T) {
	cmd := exec.Command(python(), "-W", "error::SyntaxWarning", "test_scripts.py")
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "\nOK", "%s", out)
}

// A test that check.py does not know runs after those that it knows, and may be left out
// for want of time.
func TestCheck_KnowsTheTests(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	listed, err := exec.Command(self, "-test.list", "^TestGPU_").Output()
	require.NoError(t, err)
	code := "import check; print('\\n'.join(check.ORDER))"
	known, err := exec.Command(python(), "-c", code).CombinedOutput()
	require.NoError(t, err, "%s", known)
	tests, parts := map[string]bool{}, []string{}
	for line := range strings.Lines(string(known)) {
		name, part, _ := strings.Cut(strings.TrimSpace(line), "/")
		if !strings.HasPrefix(name, "bench ") {
			tests["TestGPU_"+name] = true
		}
		if name == "MPS" {
			parts = append(parts, part)
		}
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(tests)), strings.Fields(string(listed)))
	require.ElementsMatch(t, slices.Collect(maps.Keys(contracts)), parts)
}

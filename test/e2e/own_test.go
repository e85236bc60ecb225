package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/test/programtest"
)

// ownProcess says whether this process is the test's own, whose environment it may change
// beside other tests. Where it is not, such a process has run the test when it returns.
func ownProcess(t *testing.T) bool {
	t.Helper()
	const name = "GPUMUX_TEST_OWN"
	if os.Getenv(name) == t.Name() {
		return true
	}
	t.Parallel()
	program := programtest.Binary(t)
	test := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=10m", fmt.Sprintf("-record=%t", *record))
	test.Env = append(os.Environ(), name+"="+t.Name(), "GPUMUX_BINARY="+program)
	output, err := test.CombinedOutput()
	require.NoError(t, err, "%s", output)
	if bytes.Contains(output, []byte("--- SKIP: "+t.Name())) {
		rig.Likewise(t, output)
	}
	require.Contains(t, string(output), "--- PASS: "+t.Name())
	return false
}

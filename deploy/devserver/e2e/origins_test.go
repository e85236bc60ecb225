package e2e

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The same sum comes of all four ways, and only a slot with a shard of its own holds no more than that.
func TestOrigins_Pmap(t *testing.T) {
	t.Parallel()
	e := newExample(t, "pmap")
	out, code := e.sh(e.dir, ".venv/bin/python examples/pmap/compare.py")
	require.Zero(t, code, out)
	spaces := regexp.MustCompile(` +`)
	for way, want := range map[string]string{
		"serial": "1 697953.1 8.00MiB 8.00MiB 4B 8.00MiB 8.00MiB", "replicated": "1 697953.0 8.00MiB 8.00MiB 4B 2.00MiB 32.00MiB",
		"sharded": "1 697953.0 2.00MiB 2.00MiB 4B 2.00MiB 8.00MiB", "slots": "4 697953.0 2.00MiB 2.00MiB 4B 2.00MiB 2.00MiB",
	} {
		require.Contains(t, spaces.ReplaceAllString(out, " "), "\n"+way+" "+want+"\n")
	}

	// It tells when the numbers are wrong.
	program := e.path("examples/pmap/pmap.py")
	text, err := os.ReadFile(program)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(program, []byte(strings.Replace(string(text), "row**2", "row**3", 1)), 0o644))
	out, code = e.sh(e.dir, ".venv/bin/python examples/pmap/compare.py slots")
	require.Equal(t, 1, code)
	require.Contains(t, out, "WRONG")
}

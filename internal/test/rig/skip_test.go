package rig

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// noted is a test that notes how it ended, and goes on.
type noted struct {
	testing.TB
	output string
}

func (n *noted) Helper()                   {}
func (n *noted) Name() string              { return "TestX/of one" }
func (n *noted) Skip(args ...any)          { n.output += "skipped " + fmt.Sprint(args...) }
func (n *noted) Fatalf(f string, a ...any) { n.output += "failed " + fmt.Sprintf(f, a...) + "\n" }

func TestBecause(t *testing.T) {
	for strict, fails := range map[string]bool{
		"":                              false,
		"1":                             true,
		"needs root":                    true,
		"no NVIDIA GPU":                 false,
		"needs root, no NVIDIA GPU":     false,
		"TestX":                         false,
		"needs root,TestX/of one":       false,
		"Test,TestX/of,TestX/of one/is": true,
	} {
		t.Setenv(Strict, strict)
		n := &noted{TB: t}
		Because(n, GPU, "the driver ", "is away\n")
		const text = "skip: no NVIDIA GPU: the driver is away"
		if fails {
			require.Contains(t, n.output, "failed "+text+"; GPUMUX_TEST_STRICT does not allow it\n", strict)
			continue
		}
		require.Equal(t, "skipped "+text, n.output, strict)
	}
	t.Setenv(Strict, "")
	n := &noted{TB: t}
	Because(n, Root)
	require.Equal(t, "skipped skip: needs root", n.output)
}

package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Packages below name no flags; the command does, in what it says of their errors.
func TestMistake_NamesTheFlag(t *testing.T) {
	a := newApp(Options{})
	for text, want := range map[string]string{
		"set start: in the worker's file": "in the worker's file, or --start-timeout with --local",
		"devices: cpu runs it on the CPU": "--devices cpu runs it on the CPU",
	} {
		require.NotContains(t, text, "--")
		require.Contains(t, a.phrase(text), want)
	}
}

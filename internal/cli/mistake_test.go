package cli

import (
	"strings"
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

func TestMistake_SaysWhatWasMeant(t *testing.T) {
	for value, want := range map[string]string{
		"map f --loca":        "unknown flag: --loca",
		"map f --timeout 10":  "--timeout 10 has no unit; write 10s",
		"map f --timeout=ten": `--timeout "ten" is no time; write 90s, 5m or 2h`,
	} {
		got := run(t, "", strings.Fields(value)...)
		require.Equal(t, exitUsage, got.code, value)
		require.Contains(t, got.stderr, want, value)
	}
	for _, flag := range []string{"--arg", "--option", "--timeout", "--memory"} {
		got := run(t, "", "map", "f", "--range", "0:1", flag, strings.Repeat("x", 20_000))
		require.Equal(t, exitUsage, got.code, flag)
		require.Less(t, len(got.stderr), 500, flag)
		require.Contains(t, got.stderr, "xxx…", flag)
	}
}

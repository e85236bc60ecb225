package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/workers/config"
)

// A program that is no Python is refused before a server is started for it, with what it said.
func TestStartable(t *testing.T) {
	python := func(script string) map[string]config.Task {
		path := filepath.Join(t.TempDir(), "python")
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755))
		return map[string]config.Task{"a": {Interpreter: path}, "b": {Interpreter: path}, "c": {}}
	}
	require.NoError(t, startable(t.Context(), python("echo 3.9.0 /usr/bin/python")))
	require.NoError(t, startable(t.Context(), python("echo loading modules >&2; echo 3.9.0 /usr/bin/python; echo done >&2")))
	for script, want := range map[string]string{
		"echo '2.7.18 /usr/bin/python'; exit 1":       "python: 2.7.18 /usr/bin/python; gpumux needs Python 3.9 or newer; give one with --python",
		"echo $0: invalid option >&2; exit 2":         "python: invalid option; this is not how Python 3.9 or newer answers; give one with --python",
		"exit 0":                                      "python: it said nothing when asked for its version; this is not how",
		"echo -c whatever":                            "whatever; this is not how Python",
		"exec no-such-program-anywhere-to-be-started": "not found",
	} {
		err := startable(t.Context(), python(script))
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "--python /")
		require.Equal(t, ExitUsage, exitCode(err))
	}
	err := startable(t.Context(), map[string]config.Task{"a": {Interpreter: "/no/such/python"}})
	require.ErrorContains(t, err, "no such file or directory; install Python 3.9 or newer")
}

package local_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/local"
	"github.com/gpumux/gpumux/workers/config"
)

// A program that is no Python is refused before a server is started for it, with what it
// said.
func TestMap_PythonIsTriedFirst(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "task.py", "def f(x): return x\n")
	try := func(script string) error {
		path := filepath.Join(t.TempDir(), "python")
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755))
		task, err := local.FindTask("task.py:f", config.Task{Interpreter: path})
		require.NoError(t, err)
		_, err = local.Open(t.Context(), local.Options{Task: task, Server: noServer})
		return err
	}
	require.ErrorIs(t, try("echo 3.9.0 /usr/bin/python"), errAway)
	require.ErrorIs(t, try("echo loading modules >&2; echo 3.9.0 /usr/bin/python; echo done >&2"), errAway)
	for script, want := range map[string]string{
		"echo '2.7.18 /usr/bin/python'; exit 1":       "python: 2.7.18 /usr/bin/python; gpumux needs Python 3.9 or newer; give another Python",
		"echo $0: invalid option >&2; exit 2":         "python: invalid option; this is not how Python 3.9 or newer answers; give another Python",
		"exit 0":                                      "python: it said nothing when asked for its version; this is not how",
		"echo -c whatever":                            "whatever; this is not how Python",
		"exec no-such-program-anywhere-to-be-started": "not found",
	} {
		err := try(script)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "Python /")
		require.ErrorAs(t, err, new(*local.MistakeError))
	}
	found, fix := local.CheckPython(t.Context(), "/no/such/python")
	require.Contains(t, found, "no such file or directory")
	require.Contains(t, fix, "install Python 3.9 or newer")
}

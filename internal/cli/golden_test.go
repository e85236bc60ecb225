package cli

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write testdata/*.golden and docs/cli.md anew")

// here is this folder; tests change the working folder.
var here, _ = filepath.Abs(".")

// golden compares text with testdata/name.golden.
func golden(t *testing.T, name, got string) {
	t.Helper()
	sameAs(t, filepath.Join(here, "testdata", name+".golden"), got)
}

func sameAs(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "write it with: go test ./internal/cli -update")
	require.Equal(t, string(want), got, "%s differs; if that is meant: go test ./internal/cli -update", path)
}

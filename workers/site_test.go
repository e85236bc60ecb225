package workers

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/gpu"
)

func onlyCPU(t testing.TB) *gpu.Inventory {
	inv, err := gpu.Open(t.Context(), gpu.Options{Static: []gpu.Device{{Index: -1, Kind: gpu.KindCPU, UUID: gpu.CPU, Name: "host", Memory: 64 << 30}}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, inv.Close()) })
	return inv
}

// site is a folder with modules, a program and a file.
func site(t testing.TB) string {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	write := func(name, content string, mode os.FileMode) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), mode))
	}
	write("embed.py", "def embed(item):\n    return item\n\nasync def other(item):\n    return item\n", 0o644)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "tasks"), 0o755))
	write("tasks/sweep.py", "def fit(item): return item\n", 0o644)
	write("tasks/score.py", "def score(item): return item\n", 0o644)
	write("train", "#!/bin/sh\ncat\n", 0o755)
	write("plain.txt", "no program\n", 0o644)
	return dir
}

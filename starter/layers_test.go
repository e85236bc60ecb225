package starter

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Callers must be able to import this package without the worker's weight.
func TestImports_AreLight(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	for _, heavy := range []string{"github.com/gpumux/gpumux/workers", "github.com/gpumux/gpumux/gpu", "github.com/spf13/cobra",
		"go.uber.org/zap", "github.com/NVIDIA/go-nvml/pkg/nvml"} {
		require.NotContains(t, strings.Fields(string(out)), heavy)
	}
}

// The package documentation lists every file.
func TestDoc_ListsTheFiles(t *testing.T) {
	for _, dir := range []string{".", "cli"} {
		doc, err := os.ReadFile(filepath.Join(dir, "doc.go"))
		require.NoError(t, err)
		_, list, ok := strings.Cut(string(doc), "Files:")
		require.True(t, ok)
		var want []string
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		for _, file := range files {
			if name := filepath.Base(file); name != "doc.go" && !strings.HasSuffix(name, "_test.go") {
				want = append(want, name)
			}
		}
		require.ElementsMatch(t, want, regexp.MustCompile(`\w+\.go`).FindAllString(list, -1), dir)
	}
}

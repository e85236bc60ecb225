package starter

import (
	"os/exec"
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

package launch_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/launch"
)

// Looking whether code has changed takes far less than what a call costs.
func BenchmarkEdition_Unchanged(b *testing.B) {
	dir := b.TempDir()
	old := time.Now().Add(-time.Hour)
	for i := range 20 {
		path := filepath.Join(dir, fmt.Sprintf("m%d.py", i))
		require.NoError(b, os.WriteFile(path, fmt.Appendf(nil, "import numpy, json, os, m%d, torch.nn\n", i+1), 0o644))
		require.NoError(b, os.Chtimes(path, old, old))
	}
	task := launch.Task{Python: "m0.py:f", Dir: dir}
	for b.Loop() {
		task.Code().Edition()
	}
}

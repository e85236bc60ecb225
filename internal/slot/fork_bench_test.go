package slot_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/rig"
)

// BenchmarkSlot_FreshItem measures one item at a time in a forked process, in a new
// interpreter and in a process that stays, for light and heavy modules.
// GPUMUX_TEST_PYTHON is the Python that has the modules.
func BenchmarkSlot_FreshItem(b *testing.B) {
	interpreter := os.Getenv("GPUMUX_TEST_PYTHON")
	if interpreter == "" {
		interpreter = "python3"
	}
	for _, module := range []string{"json", "numpy", "jax", "torch"} {
		b.Run(module, func(b *testing.B) {
			if exec.Command(interpreter, "-c", "import "+module).Run() != nil {
				rig.Because(b, rig.Framework, interpreter, " cannot import ", module, "; GPUMUX_TEST_PYTHON names a Python that can")
			}
			dir := b.TempDir()
			code := "import " + module + "\ndef item(x): return x\n"
			require.NoError(b, os.WriteFile(filepath.Join(dir, "tasks.py"), []byte(code), 0o644))
			for name, each := range map[string]struct {
				mode  gpumux.Mode
				fresh launch.Fresh
			}{
				"Fork":       {mode: gpumux.ModeFresh},
				"Spawn":      {mode: gpumux.ModeFresh, fresh: launch.Spawn},
				"Persistent": {mode: gpumux.ModePersistent},
			} {
				b.Run(name, func(b *testing.B) {
					s := slot.New(slot.Options{Name: "cpu/0", Device: "CPU", Runtime: runtimePath(b), Env: map[string]string{"JAX_PLATFORMS": "cpu"}})
					defer s.Stop(context.Background())
					task := python(dir, "item")
					task.Fresh, task.Interpreter = each.fresh, interpreter
					call := slot.Call{Call: calls.Call{Mode: each.mode}, Work: work(1)}
					require.NoError(b, s.Run(context.Background(), task, call))
					for b.Loop() {
						require.NoError(b, s.Run(context.Background(), task, call))
					}
				})
			}
		})
	}
}

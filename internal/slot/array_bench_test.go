package slot_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/gputest"
	"github.com/gpumux/gpumux/internal/test/rig"
)

// BenchmarkSlot_ArrayResult measures an item that returns a NumPy array, until the slot
// has it as JSON. Its name says how many floats.
func BenchmarkSlot_ArrayResult(b *testing.B) {
	interpreter, err := filepath.Abs("../../.venv/bin/python")
	require.NoError(b, err)
	if python := os.Getenv("GPUMUX_TEST_PYTHON"); python != "" {
		interpreter = python
	}
	if out, err := exec.Command(interpreter, "-c", "import numpy").CombinedOutput(); err != nil {
		rig.Because(b, rig.NumPy, interpreter, ": ", string(out))
	}
	dir := b.TempDir()
	code := "import numpy\nnumbers = numpy.arange(1000000) / 7\ndef item(n): return numbers[:n]\n"
	require.NoError(b, os.WriteFile(filepath.Join(dir, "tasks.py"), []byte(code), 0o644))
	for _, n := range []string{"1024", "1000000"} {
		b.Run(n, func(b *testing.B) {
			s := slot.New(slot.Options{Name: "cpu/0", Device: "CPU", Runtime: runtimePath(b)})
			defer s.Stop(context.Background())
			task := python(dir, "item")
			task.Interpreter = interpreter
			items := func(count int) slot.Call {
				return slot.Call{Work: &gputest.Work{OnDone: func(d calls.Done) { assert.Nil(b, d.Fault) }, From: func(yield func(calls.Item, error) bool) {
					for range count {
						if !yield(calls.Item{Value: json.RawMessage(n)}, nil) {
							return
						}
					}
				}}}
			}
			require.NoError(b, s.Run(context.Background(), task, items(1)))
			b.ResetTimer()
			require.NoError(b, s.Run(context.Background(), task, items(b.N)))
		})
	}
}

package diagnosis

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/wire"
)

// logLines are what a task that reads logs has in its items.
var logLines = []string{
	"GPU is lost", "CUDA error: uncorrectable ECC error encountered", "terminate called: std::bad_alloc", "CUDA out of memory. Tried to allocate 2.00 GiB.",
	"CUDA error: an illegal memory access was encountered", "CUDA error 700 at kernel.cu:3", "RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes.",
	"MPS client failed to connect to the MPS control daemon", "CUDA error: unknown error", "all CUDA-capable devices are busy or unavailable",
	"No available memory for the cache blocks", "java.lang.OutOfMemoryError", "[Errno 12] Cannot allocate memory",
}

// Words count only where their speaker does: not what a task quotes.
func TestDiagnose_QuotedWordsAreTheTasksOwn(t *testing.T) {
	for _, line := range logLines {
		quoted := "cannot parse " + line
		for name, e := range map[string]Evidence{
			"of any exception":       {Class: "json.decoder.JSONDecodeError", Message: quoted},
			"of a class of its own":  {Class: "parse.BadLine", Message: quoted},
			"of a KeyError":          {Class: "KeyError", Message: "'" + line + "'"},
			"of a cause":             {Class: "parse.BadLine", Message: "line 3", Chain: []wire.Cause{{Class: "KeyError", Message: quoted}}},
			"of the item":            {Class: "RuntimeError", Message: quoted, Item: []byte(`{"line":"` + line + `"}`)},
			"of a script's last act": {Command: true, Exited: true, ExitCode: 1, Tail: "Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    raise LookupError(line)\nLookupError: " + quoted + "\n"},
		} {
			for _, cpu := range []bool{false, true} {
				e.OnCPU = cpu
				d := Diagnose(e)
				require.Equal(t, gpumux.FaultTaskError, d.Fault.Kind, "%s %s: %s", line, name, d.Fault.Error())
				require.False(t, d.Device || d.Blameless || d.Poisoned && !e.Exited, "%s %s", line, name)
			}
		}
	}
}

// A slot on the CPU has no device that could be lost, ruined or full.
func TestDiagnose_NothingOfDevicesOnTheCPU(t *testing.T) {
	for _, c := range diagnosisCases(t) {
		if c.CPU {
			continue
		}
		e := c.evidence()
		e.OnCPU = true
		d := Diagnose(e)
		require.False(t, d.Device || d.MPSWide || d.Fault.Kind == gpumux.FaultDeviceLost, c.Name)
		if d.Poisoned {
			require.True(t, e.Exited, c.Name)
		}
		if c.Kind == gpumux.FaultHostOOM {
			require.Equal(t, c.Kind, d.Fault.Kind, c.Name)
		}
	}
}

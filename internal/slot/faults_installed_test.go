package slot_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/calls"
	"github.com/gpumux/gpumux/internal/slot"
	"github.com/gpumux/gpumux/internal/test/gputest"
)

// TestSlot_FaultsOfInstalledFrameworks asks the real frameworks for more memory than
// there can be, on the CPU.
func TestSlot_FaultsOfInstalledFrameworks(t *testing.T) {
	t.Parallel()
	// This is more than there are addresses: a system that overcommits refuses nothing less.
	const mostOfAll = 1 << 48
	for module, code := range map[string]string{
		"torch": "import torch\ndef item(x): return float(torch.empty(1 << 46).sum())\n",
		"jax":   "import jax.numpy as jnp\ndef item(x): return float(jnp.ones((1 << 23, 1 << 23)).sum())\n",
	} {
		t.Run(module, func(t *testing.T) {
			interpreter := withModule(t, module)
			f := newForge(t, code)
			task := f.task("item")
			task.Interpreter = interpreter
			// The import of some takes half a minute.
			got := fault(t, f.slot("cpu/0", nil).Run(t.Context(), task, slot.Call{Work: work(0)}))
			require.Equal(t, gpumux.FaultHostOOM, got.Kind, got.Error())
			require.EqualValues(t, mostOfAll, got.Requested, got.Error())
			require.True(t, got.Alone)
			require.Contains(t, got.Hint, "host")
		})
	}
}

// TestCap_InstalledJAX asks JAX for what it tells its device's plugin, in a task that has
// set the old name of the limit as many scripts do. JAX itself refuses both names.
func TestCap_InstalledJAX(t *testing.T) {
	t.Parallel()
	interpreter := withModule(t, "jax")
	f := newForge(t, `
import os
os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = os.environ["OWN"]
import jax
from jaxlib import xla_client
def item(x):
    options = xla_client.generate_pjrt_gpu_plugin_options()
    return [options["memory_fraction"], os.environ.get("XLA_PYTHON_CLIENT_MEM_FRACTION"), os.environ["XLA_CLIENT_MEM_FRACTION"]]
`)
	for item, want := range map[string]string{".90": `[0.25,null,".2500"]`, ".1": `[0.1,null,".1"]`} {
		task := f.task("item")
		task.Interpreter, task.Env = interpreter, map[string]string{"OWN": item}
		s := f.slot("gpu/0", func(o *slot.Options) {
			o.Room, o.Env = 8<<30, map[string]string{"XLA_CLIENT_MEM_FRACTION": ".2500", "JAX_PLATFORMS": "cpu"}
		})
		var got string
		require.NoError(t, s.Run(t.Context(), task, slot.Call{Work: &gputest.Work{From: gputest.Values(0), OnDone: func(d calls.Done) { got = string(d.Value) }}}))
		require.JSONEq(t, want, got)
	}
}

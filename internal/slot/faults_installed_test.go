package slot_test

import (
	"os/exec"
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
	// This is more than there are addresses: a system that overcommits refuses nothing less.
	const mostOfAll = 1 << 48
	for module, c := range map[string]struct {
		task      string
		requested int64
	}{
		"torch":      {"import torch\ndef item(x): return float(torch.empty(1 << 46).sum())\n", mostOfAll},
		"jax":        {"import jax.numpy as jnp\ndef item(x): return float(jnp.ones((1 << 23, 1 << 23)).sum())\n", mostOfAll},
		"tensorflow": {"import tensorflow as tf\ndef item(x): return float(tf.reduce_sum(tf.ones((1 << 23, 1 << 23))))\n", mostOfAll},
		"numba": {`
import numba, numpy as np
@numba.njit
def item(x): return np.ones(1 << 45).sum() + x
`, 0},
		"pyarrow": {"import pyarrow as pa\ndef item(x): return pa.allocate_buffer(1 << 62).size\n", 1 << 62},
		"polars":  {"import polars as pl\ndef item(x): return len(pl.select(pl.int_range(0, 1 << 45, eager=False)))\n", mostOfAll},
		"onnx": {`
import numpy as np, onnxruntime as ort
from onnx import helper as h, TensorProto as T
shape = h.make_node("Constant", [], ["s"], value=h.make_tensor("v", T.INT64, [2], [1 << 23, 1 << 23]))
nodes = [shape, h.make_node("Expand", ["x", "s"], ["b"]), h.make_node("ReduceSum", ["b"], ["y"], keepdims=0)]
made = h.make_graph(nodes, "g", [h.make_tensor_value_info("x", T.FLOAT, [1])], [h.make_tensor_value_info("y", T.FLOAT, [])])
model = h.make_model(made, opset_imports=[h.make_opsetid("", 13)], ir_version=8).SerializeToString()
def item(x):
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    return float(session.run(None, {"x": np.ones(1, np.float32)})[0])
`, mostOfAll},
	} {
		t.Run(module, func(t *testing.T) {
			interpreter := withModule(t, module)
			f := newForge(t, c.task)
			task := f.task("item")
			task.Interpreter = interpreter
			// The import of some takes half a minute.
			got := fault(t, f.slot("cpu/0", nil).Run(t.Context(), task, slot.Call{Work: work(0)}))
			require.Equal(t, gpumux.FaultHostOOM, got.Kind, got.Error())
			require.Equal(t, c.requested, got.Requested, got.Error())
			require.True(t, got.Alone)
			require.Contains(t, got.Hint, "host")
		})
	}
}

// TestCap_InstalledTensorFlow checks that TensorFlow has the calls that set and read its
// limit. Without a GPU the CPU's allocator stands in for a device's.
func TestCap_InstalledTensorFlow(t *testing.T) {
	python := exec.Command(withModule(t, "tensorflow"), "-c", `
from gpumux.process import memory
told = []
memory.cap(8 << 30, lambda *what: told.append(what))
import tensorflow as tf
memory.prove()
assert told == [], told
tf.ones(3)
memory.prove()
assert told == [("tensorflow", None)], told
limits = [limit for kind, limit in memory._tensorflow_limits() if kind == "CPU"]
assert len(limits) == 1 and limits[0] > 0, limits
memory._tensorflow_limits = lambda: [("GPU", limits[0])]
tf.config.list_physical_devices = lambda kind: ["gpu"]
assert memory._tensorflow_holds(tf, limits[0])
try:
    memory._tensorflow_holds(tf, limits[0] - 1)
except RuntimeError as error:
    print(error)
`)
	python.Env = append(python.Environ(), "PYTHONPATH=../../clients/python", "PYTHONDONTWRITEBYTECODE=1")
	out, err := python.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "its allocators may take")
}

// TestCap_InstalledJAX asks JAX for what it tells its device's plugin, in a task that has
// set the old name of the limit as many scripts do. JAX itself refuses both names.
func TestCap_InstalledJAX(t *testing.T) {
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

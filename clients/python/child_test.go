package python_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/wire"
)

// The Pythons that a task starts have the slot's limits, as it has itself, and do what
// their environment's own sitecustomize does.
func TestChildren_HaveTheLimits(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "torch.py"), []byte(`
import types
limits = []
class OutOfMemoryError(RuntimeError): pass
uint8 = "uint8"
def empty(size, dtype, device):
    if size > limits[-1] * (16 << 30): raise OutOfMemoryError("CUDA out of memory. Tried to allocate")
waiting = []
cuda = types.SimpleNamespace(
    _lazy_call=waiting.append, init=lambda: [call() for call in waiting], device_count=lambda: 1, memory_reserved=lambda index: 0,
    get_device_properties=lambda index: types.SimpleNamespace(total_memory=16 << 30), is_initialized=lambda: False, empty_cache=lambda: None,
    set_per_process_memory_fraction=lambda fraction, index: limits.append(fraction),
)
`), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sitecustomize.py"), []byte("import builtins; builtins.own = True\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "worker.py"), []byte(`
import builtins, json, sys
import torch
torch.cuda.init()
print(json.dumps([torch.limits[-1:], getattr(builtins, "own", False), "gpumux" in "".join(sys.path)]))
`), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tasks.py"), []byte(`
import json, multiprocessing, os, subprocess, sys
here = os.path.dirname(os.path.abspath(__file__))
def child(queue):
    import torch
    torch.cuda.init()
    queue.put(torch.limits[-1:])
def item(method):
    if method in ("program", "own"):  # as torchrun starts its workers
        if method == "own": os.environ["PYTHONPATH"] += os.pathsep + here
        return json.loads(subprocess.run([sys.executable, "-u", os.path.join(here, "worker.py")], stdout=subprocess.PIPE, check=True).stdout)
    context = multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    found = queue.get()
    process.join()
    return found
`), 0o644))
	p := launch(t)
	require.NoError(t, p.Conn.Send(wire.Hello{Version: wire.Version, Task: "item", Target: "tasks.py:item", Dir: dir, Slot: "gpu/0", Device: "GPU-a",
		Memory: 5 << 30, Room: 4 << 30, Mode: gpumux.ModePersistent}))
	require.IsType(t, wire.ProcessHello{}, p.Next())
	require.IsType(t, wire.Ready{}, p.Next())
	for _, c := range [][2]string{
		{"spawn", "[0.25]"}, {"forkserver", "[0.25]"}, {"program", "[[0.25],false,false]"}, {"own", "[[0.25],true,false]"},
	} {
		require.Equal(t, []string{c[1]}, p.Values(`"`+c[0]+`"`), c[0])
	}
}

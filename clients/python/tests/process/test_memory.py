"""Caps, and what is freed, against stand-ins for the frameworks, which write down what is asked of them."""

import gc
import json
import os
import platform
import resource
import subprocess
import sys
import sysconfig
import tempfile
import types
import unittest

from gpumux.process import memory

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(memory.__file__))))

# torch's own rules: a call that waits for CUDA runs when CUDA starts, or at once when it has started; an allocation above the
# limit is refused before the device is asked.
TORCH = """
import types
calls, asked = [], []
holds = True
uint8 = "uint8"
class OutOfMemoryError(RuntimeError): pass
def empty(size, dtype, device):
    index = int(device.rpartition(":")[2])
    limit = [total for i, total in cuda.limits if i == index][-1]
    asked.append([size, round(limit), device])
    if holds and size > limit: raise OutOfMemoryError("CUDA out of memory. Tried to allocate")
class Cuda(types.ModuleType):
    started = False
    waiting = []
    def _lazy_call(self, call): call() if self.started else self.waiting.append(call)
    def init(self):
        Cuda.started = True
        for call in self.waiting: call()
    def device_count(self): return self._up(2)
    def get_device_properties(self, index): return types.SimpleNamespace(total_memory=self._up([80 << 30, 40 << 30][index]))
    limits = []
    def set_per_process_memory_fraction(self, fraction, device):
        self.limits.append([device, fraction * self.get_device_properties(device).total_memory])
        calls.append([fraction, device])
    def memory_reserved(self, index): return self._up(1 << 20)
    def is_initialized(self): return self.started
    def empty_cache(self): pass
    def _up(self, value):
        assert self.started, "CUDA was used before the task started it"
        return value
cuda = Cuda("torch.cuda")
"""

TENSORFLOW = """
import types
calls = []
class LogicalDeviceConfiguration:
    def __init__(self, memory_limit): self.memory_limit = memory_limit
own = {}
config = types.SimpleNamespace(
    LogicalDeviceConfiguration=LogicalDeviceConfiguration,
    list_physical_devices=lambda kind: calls.append("list") or ["gpu:0", "gpu:1"],
    get_logical_device_configuration=lambda gpu: own.get(gpu),
    set_logical_device_configuration=lambda gpu, parts: calls.append([gpu, [p.memory_limit for p in parts]]),
)
"""

CONTEXT = """
import tensorflow
class Context:
    _initialized, _handle = False, "handle"
    def ensure_initialized(self):
        tensorflow.calls.append("start")
        self._initialized = True
it = Context()
def context(): return it
"""

# What the devices' allocators may take, as TensorFlow's list of devices says it.
DEVICES = """
limits = [["CPU", 1 << 40], ["GPU", 3072 << 20], ["GPU", 3072 << 20]]
deleted = []
def TFE_ContextListDevices(handle): return [handle, limits]
def TF_DeviceListCount(devices): return len(devices[1])
def TF_DeviceListType(devices, i): return devices[1][i][0]
def TF_DeviceListMemoryBytes(devices, i): return devices[1][i][1]
def TF_DeleteDeviceList(devices): deleted.append(devices[0])
"""

# CuPy's own rules: what its pool has and is free is handed out again; what it takes anew stays below its limit, and it gives all
# that is free back before it refuses.
CUPY = """
import os
limit = os.environ.get("CUPY_GPU_MEMORY_LIMIT")
holds = True
class OutOfMemoryError(MemoryError): pass
OutOfMemoryError.__module__ = "cupy.cuda.memory"
class Pool:
    total = free = asked = 0
    limit = int(limit) if (limit or "").isdigit() else 0
    def total_bytes(self): return self.total
    def free_bytes(self): return self.free
    def get_limit(self): return self.limit
    def set_limit(self, size): self.limit = size
    def free_all_blocks(self): self.total, self.free = self.total - self.free, 0
    def malloc(self, size): pass
pool = Pool()
def get_default_memory_pool(): return pool
class cuda:
    allocator = pool.malloc
    def get_allocator(): return cuda.allocator
def empty(size, dtype):
    pool.asked += 1
    if size > pool.free:
        pool.free_all_blocks()
        if holds and pool.total + size > pool.limit: raise OutOfMemoryError("Out of memory allocating")
        pool.total += size
"""

JAX = """
import types, jax._src.xla_bridge
limit, pool = 0, {"pool_bytes": 3 << 20}
def local_devices():
    assert jax._src.xla_bridge.up, "JAX was started"
    return [types.SimpleNamespace(id=0, platform="cpu"),
            types.SimpleNamespace(id=1, platform="gpu", memory_stats=lambda: {"bytes_limit": limit, **pool} if limit else None)]
"""


class TestCap(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.write("torch/__init__.py", TORCH)
        self.write("cupy.py", CUPY)
        self.write("jax/__init__.py", JAX)
        self.write("jax/_src/__init__.py", "")
        self.write("jax/_src/xla_bridge.py", "up = False\ndef backends_are_initialized(): return up")
        self.write("tensorflow/__init__.py", TENSORFLOW)
        for package in ("tensorflow/python", "tensorflow/python/eager", "tensorflow/python/client"):
            self.write(package + "/__init__.py", "")
        self.write("tensorflow/python/pywrap_tfe.py", DEVICES)
        self.write("tensorflow/python/client/pywrap_tf_session.py", "from tensorflow.python.pywrap_tfe import *")
        self.write("tensorflow/python/eager/context.py", CONTEXT)

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)

    def run_task(self, code, room=7 << 30, **env):
        """What the code leaves in `got`, and what was printed to standard error."""
        script = (
            f"import sys; sys.path[:0] = [{ROOT!r}, {self.folder!r}]\n"
            f"from gpumux.process import memory; told = []; memory.cap({room!r}, lambda *what: told.append(what))\n"
            f"{code}\nimport json; print(json.dumps(got))"
        )
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PYTHONDONTWRITEBYTECODE": "1", "PATH": os.environ.get("PATH", ""), **env},
        )
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return json.loads(done.stdout), done.stderr.decode()

    def test_torch_when_cuda_starts_and_not_before(self):
        got, said = self.run_task("import torch; got = [list(torch.calls)]; torch.cuda.init(); got.append(torch.calls)")
        share = 8 * 1024 - 1024
        self.assertEqual(got, [[], [[32 / (80 * 1024), 0], [share / (80 * 1024), 0], [32 / (40 * 1024), 1], [share / (40 * 1024), 1]]])
        self.assertEqual(said, "")

    def test_torch_is_never_given_more_than_the_device_has(self):
        got, _ = self.run_task("import torch; torch.cuda.init(); got = torch.calls", room=99 << 30)
        self.assertEqual(got[3], [1.0, 1], "never more than the device has")
        self.assertAlmostEqual(got[1][0], 1.0, places=3)

    def test_torch_is_tried_with_a_limit_that_costs_nothing(self):
        code = "import torch; torch.cuda.init(); got = [torch.asked, told]"
        tried = [[128 << 20, 32 << 20, "cuda:0"], [128 << 20, 32 << 20, "cuda:1"]]
        got, said = self.run_task(code)
        self.assertEqual(got, [tried, [["torch", None]]])
        self.assertEqual(said, "")
        got, said = self.run_task("import torch; torch.holds = False; torch.cuda.init(); got = [torch.calls[1], torch.calls[3], told]")
        why = "RuntimeError: an allocation of 128 MiB passed a limit of 32 MiB on device 1"
        share = 8 * 1024 - 1024
        self.assertEqual(got, [[share / (80 * 1024), 0], [share / (40 * 1024), 1], [["torch", why]]], "what limit there is stays")
        self.assertIn("torch is not limited to the slot's memory by itself: " + why, said)

    def test_torch_that_changed_does_not_fail_the_task(self):
        self.write("torch/__init__.py", "class cuda: pass")
        got, said = self.run_task("import torch; got = 1")
        self.assertIn("torch is not limited to the slot's memory by itself: AttributeError", said)
        self.write("torch/__init__.py", TORCH + "cuda.get_device_properties = None")
        got, said = self.run_task("import torch; torch.cuda.init(); got = 1")
        self.assertIn("torch is not limited to the slot's memory by itself: TypeError", said)

    def test_a_module_keeps_its_loader_and_may_fail_and_be_imported_again(self):
        self.write("torch/__init__.py", TORCH + "import os\nif 'FAIL' in os.environ: del os.environ['FAIL']; raise ImportError('once')")
        got, _ = self.run_task(
            "import sys\ntry: import torch\nexcept ImportError: pass\nimport torch; torch.cuda.init()\n"
            "got = [len(torch.calls), type(torch.__loader__).__name__, 'exec_module' in vars(torch.__loader__)]",
            FAIL="1",
        )
        self.assertEqual(got, [4, "SourceFileLoader", False])

    def test_a_framework_that_is_missing_is_missing_as_ever(self):
        got, _ = self.run_task(
            "import sys; sys.path.pop(1)\ntry: import torch\nexcept ModuleNotFoundError as e: got = [str(e), e.name]"
        )
        self.assertEqual(got, ["No module named 'torch'", "torch"])

    def test_tensorflow_when_its_context_starts(self):
        code = (
            "import tensorflow as tf; got = [list(tf.calls)]\n"
            "from tensorflow.python.eager.context import Context\n"
            "tf.own['gpu:1'] = ['of the task']\n"
            "Context().ensure_initialized(); Context().ensure_initialized(); got.append(tf.calls)"
        )
        got, said = self.run_task(code, room=3 << 30)
        self.assertEqual(got, [[], ["list", ["gpu:0", [4096 - 1024]], "start", "start"]])
        self.assertEqual(said, "")

    def test_tensorflow_says_what_its_allocators_may_take(self):
        code = (
            "import tensorflow as tf; from tensorflow.python.eager import context; from tensorflow.python import pywrap_tfe as devices\n"
            "memory.prove(); got = [list(told)]; context.context().ensure_initialized(); devices.limits += %s\n"
            "memory.prove(); memory.prove(); got += [told, devices.deleted]"
        )
        got, said = self.run_task(code % "[]", room=3 << 30)
        self.assertEqual(got, [[], [["tensorflow", None]], ["handle"]])
        self.assertEqual(said, "")
        got, said = self.run_task(code % "[['GPU', 1 << 20]]", room=3 << 30)
        why = "RuntimeError: its allocators may take 6145 MiB of its devices, not 6144"
        self.assertEqual(got[:2], [[], [["tensorflow", why]]], "also what the task divided itself counts")
        self.assertIn("tensorflow is not limited to the slot's memory by itself: " + why, said)
        got, _ = self.run_task(code % "[]", room=3 << 30, TF_GPU_ALLOCATOR="cuda_malloc_async")
        self.assertEqual(got[1], [["tensorflow", "RuntimeError: TF_GPU_ALLOCATOR=cuda_malloc_async has no limit"]])

    def test_tensorflow_that_changed_is_told_once(self):
        self.write("tensorflow/__init__.py", TENSORFLOW + "del config.set_logical_device_configuration")
        code = (
            "import tensorflow as tf; from tensorflow.python.eager import context\n"
            "context.context().ensure_initialized(); memory.prove(); got = told"
        )
        got, _ = self.run_task(code)
        self.assertEqual([each[0] for each in got], ["tensorflow"])
        self.assertIn("AttributeError", got[0][1])
        self.write("tensorflow/python/eager/context.py", "")
        got, _ = self.run_task("import tensorflow as tf; memory.prove(); got = told")
        self.assertEqual([each[0] for each in got], ["tensorflow"])
        self.assertIn("ImportError", got[0][1])

    def test_cupy_by_its_environment(self):
        self.assertEqual(self.run_task("import cupy; got = cupy.limit")[0], str(7 << 30))
        got, _ = self.run_task("import cupy; got = cupy.limit", CUPY_GPU_MEMORY_LIMIT="50%")
        self.assertEqual(got, "50%", "the task's own limit stays")

    def test_cupy_is_tried_once_it_holds_something(self):
        code = (
            "import cupy; memory.prove(); got = [list(told)]; cupy.pool.total, cupy.pool.free = 900, 300\n"
            "memory.prove(); memory.prove(); got += [told, cupy.pool.limit, cupy.pool.total, cupy.pool.asked]"
        )
        share = 7 << 30
        got, said = self.run_task(code)
        self.assertEqual(got, [[], [["cupy", None]], share, 600, 1])
        self.assertEqual(said, "")
        got, said = self.run_task(code.replace("memory.prove(); got", "cupy.holds = False; got"))
        why = "RuntimeError: an allocation of 128 MiB passed the limit of its memory pool"
        self.assertEqual(got[1:3], [[["cupy", why]], share])
        self.assertIn("cupy is not limited to the slot's memory by itself: " + why, said)
        got, _ = self.run_task(code, CUPY_GPU_MEMORY_LIMIT="none")
        self.assertEqual(got[1], [["cupy", "RuntimeError: its memory pool has no limit"]])

    def test_cupy_is_not_asked_before_the_task_has_started_cuda(self):
        code = (
            "import cupy, ctypes, types; cupy.pool.total, cupy.pool.free = 900, 300; codes = [3, 0]\n"
            "ctypes.CDLL = lambda name: types.SimpleNamespace(cuCtxGetCurrent=lambda context: codes.pop(0))\n"
            "memory.prove(); got = [list(told), cupy.pool.asked]; memory.prove(); got += [told, cupy.pool.asked]"
        )
        got, _ = self.run_task(code)
        self.assertEqual(got, [[], 0, [["cupy", None]], 1])

    def test_cupy_with_an_allocator_of_another_library(self):
        code = "import cupy\ndef of_rmm(size): pass\ncupy.cuda.allocator = of_rmm; memory.prove(); got = told"
        got, _ = self.run_task(code)
        self.assertRegex(got[0][1], "the task allocates through <function of_rmm .*>, which has no limit")

    def test_jax_says_what_its_allocator_may_take(self):
        code = (
            "import jax; memory.prove(); got = [list(told)]; jax._src.xla_bridge.up = True; jax.limit = %d\n"
            "memory.prove(); memory.prove(); got.append(told)"
        )
        share = 8 * 1024 - 1024
        self.assertEqual(self.run_task(code % (share << 20))[0], [[], [["jax", None]]])
        self.assertEqual(self.run_task("import jax; jax.pool = {}\n" + code % (share << 20))[0][1], [["jax", None]], "an old release")
        got, said = self.run_task(code % (70 << 30))
        why = f"RuntimeError: its allocator may take 71680 MiB of device 1, not {share}"
        self.assertEqual(got, [[], [["jax", why]]])
        self.assertIn("jax is not limited to the slot's memory by itself: " + why, said)
        got, _ = self.run_task(code % 0)
        self.assertEqual(got[1][0][1], "RuntimeError: device 1 does not say what its allocator may take")
        got, _ = self.run_task(code % (share << 20), XLA_PYTHON_CLIENT_ALLOCATOR="cuda_async")
        self.assertEqual(got[1][0][1], "RuntimeError: XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async has no limit")

    def test_nothing_where_nothing_is_limited(self):
        code = "import sys, torch, cupy; torch.cuda.init(); got = [torch.calls, cupy.limit]"
        self.assertEqual(self.run_task(code, room=0)[0], [[], None])


# How many pages the kernel maps for items of 10 MB that are freed when they end, and again after reuse and trim.
ITEMS = """
import resource
from gpumux.process import memory
def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def items():
    before = faults()
    for _ in range(20):
        item = [bytearray(1_000_000) for _ in range(10)]
        del item
    return faults() - before
items()
anew = items()
before = faults()
memory.reuse()
touched = faults() - before
items()
kept = items()
memory.trim()
print(anew, touched, kept, items())
"""


@unittest.skipUnless(platform.libc_ver()[0] == "glibc" and not sysconfig.get_config_var("Py_GIL_DISABLED"), "rules of glibc")
class TestReuse(unittest.TestCase):
    def test_what_an_item_frees_is_the_next_ones(self):
        env = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
        got = subprocess.run([sys.executable, "-c", ITEMS], env={**env, "PYTHONPATH": ROOT}, capture_output=True, text=True, check=True)
        anew, touched, kept, trimmed = map(int, got.stdout.split())
        item = 10_000_000 // resource.getpagesize()
        self.assertGreater(anew, 10 * item)
        self.assertLess(touched, 100)
        self.assertLess(kept, item)
        self.assertGreater(trimmed, item // 2)


class TestTrim(unittest.TestCase):
    def test_gives_back_what_is_loaded(self):
        calls = []
        torch = types.ModuleType("torch")
        torch.cuda = types.SimpleNamespace(is_initialized=lambda: up, empty_cache=lambda: calls.append("torch"))
        jax = types.ModuleType("jax")
        jax.clear_caches = lambda: calls.append("jax") or 1 / 0
        cupy = types.ModuleType("cupy")
        cupy.get_default_memory_pool = lambda: types.SimpleNamespace(free_all_blocks=lambda: calls.append("cupy"))
        cupy.get_default_pinned_memory_pool = lambda: types.SimpleNamespace(free_all_blocks=lambda: calls.append("pinned"))
        pyarrow = types.ModuleType("pyarrow")
        pyarrow.default_memory_pool = lambda: types.SimpleNamespace(release_unused=lambda: calls.append("pyarrow"))
        before = {name: sys.modules.get(name) for name in ("torch", "jax", "cupy", "pyarrow")}
        sys.modules.update(torch=torch, jax=jax, cupy=cupy, pyarrow=pyarrow)
        try:
            up = True
            memory.trim()
            calls.append("down")
            up = False
            memory.trim()
        finally:
            for name, module in before.items():
                if module is None:
                    del sys.modules[name]
                else:
                    sys.modules[name] = module
        self.assertEqual(
            calls,
            ["jax", "torch", "cupy", "pinned", "pyarrow", "down", "jax", "cupy", "pinned", "pyarrow"],
        )

    def test_collects_cycles(self):
        class Node:
            pass

        node = Node()
        node.self = node
        alive = []
        import weakref

        weakref.finalize(node, alive.append, "gone")
        was = gc.isenabled()
        gc.disable()
        try:
            del node
            memory.trim()
        finally:
            if was:
                gc.enable()
        self.assertEqual(alive, ["gone"])


if __name__ == "__main__":
    unittest.main()

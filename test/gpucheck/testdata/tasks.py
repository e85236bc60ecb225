"""The tasks of the GPU tests: what a framework, or the CUDA driver itself, does to a device."""

import ctypes
import os
import time

try:
    import gpumux
except ImportError:  # run as a program
    gpumux = None

MIB = 1 << 20
# A kernel that writes to an address that no one has.
ILLEGAL = b""".version 6.0
.target sm_50
.address_size 64
.visible .entry illegal() {
  .reg .b64 %a;
  .reg .b32 %v;
  mov.u64 %a, 16;
  mov.u32 %v, 1;
  st.global.u32 [%a], %v;
  ret;
}
"""


class _Torch:
    def __init__(self):
        import torch

        self.torch = torch

    def platform(self):
        return self.torch.zeros(1, device="cuda").device.type

    def add_up(self, number):
        return float(self.torch.full((64, 64), float(number), device="cuda").sum())

    def allocate(self, size):
        return self.torch.empty(size, dtype=self.torch.uint8, device="cuda")

    def product(self, size=256):
        square = self.torch.full((size, size), 1.0, device="cuda")
        return float(self.torch.matmul(square, square).sum())


class _Jax:
    def __init__(self):
        import jax
        import jax.numpy

        self.jax = jax

    def platform(self):
        return {"gpu": "cuda"}.get(self.jax.devices()[0].platform, self.jax.devices()[0].platform)

    def add_up(self, number):
        return float(self.jax.numpy.full((64, 64), float(number)).sum())

    def allocate(self, size):
        return self.jax.numpy.zeros((size // MIB, MIB), self.jax.numpy.uint8).block_until_ready()

    def product(self):
        square = self.jax.numpy.full((256, 256), 1.0)
        return float(self.jax.numpy.matmul(square, square).sum())


class _CuPy:
    def __init__(self):
        import cupy

        self.cupy = cupy

    def platform(self):
        return "cuda" if self.cupy.cuda.runtime.getDeviceCount() else "none"

    def add_up(self, number):
        return float(self.cupy.full((64, 64), float(number)).sum())

    def allocate(self, size):
        return self.cupy.empty(size, self.cupy.uint8)

    def product(self):
        square = self.cupy.full((256, 256), 1.0)
        return float(self.cupy.matmul(square, square).sum())


class _Driver:
    """The CUDA driver without a framework, so that nothing but the slot itself limits what is taken."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._do("cuInit", ctypes.c_uint(0))
        self._do("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        self._do("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._do("cuCtxSetCurrent", context)

    def _do(self, name, *arguments):
        code = getattr(self.cuda, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self.cuda.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError(f"{name} failed with CUDA error {code}: {(text.value or b'unknown').decode()}")

    def allocate(self, size):
        pointer = ctypes.c_uint64()
        self._do("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer

    def free(self, pointer):
        self._do("cuMemFree_v2", pointer)

    def ruin(self):
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._do("cuModuleLoadData", ctypes.byref(module), ILLEGAL)
        self._do("cuModuleGetFunction", ctypes.byref(function), module, b"illegal")
        self._do("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, None, None)
        self._do("cuCtxSynchronize")


_kept = {}


def _backend(name):
    if name not in _kept:
        _kept[name] = {"torch": _Torch, "jax": _Jax, "cupy": _CuPy, "driver": _Driver}[name]()
    return _kept[name]


def add_up(item):
    """{"framework", "number"}: 4096 times the number, calculated on the device."""
    backend = _backend(item["framework"])
    return {"platform": backend.platform(), "sum": backend.add_up(item["number"]), "device": gpumux.slot().device}


def hold(item):
    """{"framework", "bytes", "seconds"}: takes so much of the device in one piece, and lets it go."""
    block = _backend(item["framework"]).allocate(item["bytes"])
    time.sleep(item.get("seconds", 0))
    if item["framework"] == "driver":
        _backend("driver").free(block)
    return {"pid": os.getpid(), "memory": gpumux.slot().memory}


def exhaust(item):
    """{"framework", "bytes", "more"}: holds two pieces of so much, and asks for more than there is."""
    backend = _backend(item["framework"])
    kept = [backend.allocate(item["bytes"]) for _ in range(2)]
    return len(kept), backend.allocate(item["more"])


def live(item):
    """{"framework", "bytes"}: holds so much in one piece while it multiplies matrices, for which libraries are loaded."""
    backend = _backend(item["framework"])
    block = backend.allocate(item["bytes"])
    backend.product()
    time.sleep(0.3)
    del block
    return {"pid": os.getpid(), "memory": gpumux.slot().memory}


def two(item):
    """{"frameworks", "bytes", "seconds"}: holds so much with each of the frameworks at the same time, for so long."""
    backends = [_backend(name) for name in item["frameworks"]]
    blocks = [backend.allocate(item["bytes"]) for backend in backends]
    sums = [backend.add_up(1) for backend in backends]
    time.sleep(item["seconds"])
    del blocks
    return {"sums": sums}


def listing(item):
    """{"bytes"}: what NVML lists on the device, by process number, while this process holds so much."""
    block = _backend("driver").allocate(item["bytes"])
    rows = _rows()
    _backend("driver").free(block)
    return {"pid": os.getpid(), "rows": [[pid, str(held)] for pid, held in rows]}


def fill(item):
    """{"framework", "piece"}: the bytes that the framework hands out in pieces until it refuses."""
    backend, kept = _backend(item["framework"]), []
    while True:
        try:
            kept.append(backend.allocate(item["piece"]))
        except Exception as error:
            refusal = f"{type(error).__name__}: {error}"
            time.sleep(1)  # long enough for the watch to see all of it, which must still be within the budget
            return {"bytes": len(kept) * item["piece"], "refusal": refusal[:300]}


def product(item):
    """{"framework"}: a sum of 4096 and a product on the device, what they took, and when they ended."""
    began, backend = time.monotonic(), _backend(item["framework"])
    total = backend.add_up(1)
    backend.product()
    return {"pid": os.getpid(), "sum": total, "seconds": time.monotonic() - began, "ended": time.time()}


def busy(item):
    """{"seconds"}: products on the device for so long; how many."""
    backend, until, count = _backend("torch"), time.monotonic() + item["seconds"], 0
    while time.monotonic() < until:
        backend.product(2048)
        count += 1
    return count


def small(item):
    """A small network's answers, one after the other: most of a large device has nothing to do meanwhile."""
    torch = _backend("torch").torch
    if "small" not in _kept:
        layers = [layer for _ in range(8) for layer in (torch.nn.Linear(512, 512), torch.nn.ReLU())]
        _kept["small"] = torch.nn.Sequential(*layers).cuda().eval(), torch.ones(16, 512, device="cuda")
    network, rows = _kept["small"]
    with torch.no_grad():
        for _ in range(50):
            answer = network(rows)
    return float(answer.sum())


def overrun(item):
    """{"bytes", "log"}: takes so much past every framework, and writes down how long it went on to live."""
    backend = _backend("driver")
    backend.allocate(item["bytes"])
    taken = time.monotonic()
    with open(item["log"], "a") as log:
        log.write("taken 0\n")
        log.flush()
        while time.monotonic() < taken + 20:
            log.write(f"alive {time.monotonic() - taken:.4f}\n")
            log.flush()
            time.sleep(0.002)
    return "still alive"


def wander(item):
    """{"device", "bytes", "log"}: overrun on a device that the slot hides."""
    os.environ["CUDA_VISIBLE_DEVICES"] = item["device"]
    return overrun(item)


def full(item):
    """{"framework", "upto"}: takes memory for good until NVML lists so many bytes of this process, then works with 1 MiB more."""
    backend = _backend(item["framework"])
    blocks, size = _kept.setdefault("full", []), 128 * MIB
    while not _kept.get("filled"):
        backend.add_up(1) if item["framework"] != "driver" else None
        size = min(size, (item["upto"] - _listed()) // MIB * MIB)
        if size < 16 * MIB:
            _kept["filled"] = True
        else:
            blocks.append(backend.allocate(size))
    block = backend.allocate(MIB)
    time.sleep(0.005)
    if item["framework"] == "driver":
        backend.free(block)
    return {"pid": os.getpid(), "held": _listed()}


def managed(item):
    """{"bytes"}: what NVML lists of this process with so many bytes of managed memory on the device."""
    backend, pointer = _backend("driver"), ctypes.c_uint64()
    if item["bytes"]:
        backend._do("cuMemAllocManaged", ctypes.byref(pointer), ctypes.c_size_t(item["bytes"]), ctypes.c_uint(1))
        backend._do("cuMemsetD8_v2", pointer, ctypes.c_ubyte(1), ctypes.c_size_t(item["bytes"]))
        backend._do("cuCtxSynchronize")
    return _listed()


def _listed():
    """The bytes that NVML lists of this process on its device."""
    return sum(held for pid, held in _rows() if pid == os.getpid())


def _rows():
    """The numbers of the processes that NVML lists on this process's device, with the bytes of each."""
    nvml, device, count = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), ctypes.c_uint(1024)
    rows = (ctypes.c_ulonglong * (3 * count.value))()
    for code in (
        nvml.nvmlInit_v2(),
        nvml.nvmlDeviceGetHandleByUUID(os.environ["CUDA_VISIBLE_DEVICES"].encode(), ctypes.byref(device)),
        nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), rows),
    ):
        if code:
            raise RuntimeError(f"NVML error {code}")
    return [(rows[3 * i] & 0xFFFFFFFF, rows[3 * i + 1]) for i in range(count.value)]


def meet(folder, count):
    """Returns when so many processes have come to this line."""
    open(os.path.join(folder, str(os.getpid())), "w").close()
    end = time.monotonic() + 60
    while len(os.listdir(folder)) < count:
        if time.monotonic() > end:
            raise TimeoutError("the other slots did not come")
        time.sleep(0.01)


def together(item):
    """{"folder", "count", "bytes"}: holds memory until so many others hold theirs, and a while longer."""
    block = _backend("driver").allocate(item["bytes"])
    meet(item["folder"], item["count"])
    if "over" in item:
        overrun({"bytes": item["over"], "log": item["log"]})
    time.sleep(item["seconds"])
    _backend("driver").free(block)
    return os.getpid()


def ruin(item):
    """{"framework", "number", "bad", "log"}: works, but for the item whose number is bad, which ruins its CUDA context."""
    with open(item["log"], "a") as log:
        log.write(f"{item['number']} {os.getpid()}\n")
    backend = _backend(item["framework"])
    if item["framework"] == "driver":
        kept = backend.allocate(MIB)
    else:
        backend.add_up(item["number"])
    time.sleep(0.05)
    if item["number"] == item["bad"]:
        if item["framework"] == "driver":
            backend.ruin()
        elif item["framework"] == "cupy":
            # An address that no one has.
            kernel = backend.cupy.RawKernel('extern "C" __global__ void poke() { *(volatile int *)0 = 1; }', "poke")
            kernel((1,), (1,), ())
            backend.cupy.cuda.Device().synchronize()
        else:
            # An index that the device itself finds to be outside.
            index = backend.torch.full((1,), 1_000_000, dtype=backend.torch.int64, device="cuda")
            backend.torch.zeros(1, device="cuda")[index]
            backend.torch.cuda.synchronize()
        return "the context is whole"
    if item["framework"] == "driver":
        backend.free(kept)
        backend.free(backend.allocate(MIB))  # fails where a neighbour has ruined the context meanwhile
    return os.getpid()


if __name__ == "__main__":
    # A process that holds memory without gpumux, until its standard input is closed.
    import sys

    kept = _Driver().allocate(int(sys.argv[1]))
    print("holding", flush=True)
    sys.stdin.read()

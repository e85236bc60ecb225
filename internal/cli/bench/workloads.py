"""The workloads of gpumux bench: functions that a slot and a bare interpreter run alike.

Run as a program it is the other side of the comparison:

    workloads.py probe                     what is here: Python, framework, device
    workloads.py bare NAME CLIENTS         bare processes side by side, each a loop
    workloads.py loop NAME START STEP      a bare process: calls one function in a loop

An item is a number; a negative one warms the process up. A result tells when the call ended, in nanoseconds since
1970, and in which slot.
"""

import importlib
import importlib.util
import json
import os
import platform
import subprocess
import sys
import time

try:
    from gpumux import slot
except ImportError:  # a bare process
    slot = None

FRAMEWORKS = ("torch", "jax", "cupy", "numpy")
PIXELS = 319  # the side of an image, such that each layer has half as many
CHANNELS = (3, 16, 32, 64, 128, 256)
OUTPUTS = 255
HOLD = 0.2

_kept = {}

# As a task imports it: a fresh item is then forked from a process that has it.
if slot is not None and os.environ.get("BENCH_FRAMEWORK"):
    importlib.import_module({"jax": "jax.numpy"}.get(os.environ["BENCH_FRAMEWORK"], os.environ["BENCH_FRAMEWORK"]))


def light(item):
    """Next to nothing, so that what is left is what a call costs."""
    return _stamp(item)


def medium(item):
    """One product of two matrices of BENCH_SIZE rows and columns."""
    _product(int(os.environ["BENCH_SIZE"]))
    return _stamp(item)


heavy = medium  # of larger matrices


def detector(item):
    """An inference of the size of a small object detector: five convolutions of 3 x 3 with stride 2 over an image, and a head."""
    framework = _framework()
    if "detector" not in _kept:
        _kept["detector"] = framework.compile(detect), _weights(framework)
    run, (image, kernels, head) = _kept["detector"]
    framework.wait(run(image, kernels, head))
    return _stamp(item)


def _weights(framework):
    image = framework.fill(CHANNELS[0], PIXELS * PIXELS).reshape(CHANNELS[0], PIXELS, PIXELS)
    kernels = [[framework.fill(out, into) / (9 * into) for _ in range(9)] for into, out in zip(CHANNELS, CHANNELS[1:])]
    return image, kernels, framework.fill(OUTPUTS, CHANNELS[-1]) / CHANNELS[-1]


def detect(x, kernels, head):
    """A convolution is nine products, one for each place of its kernel, in every framework alike."""
    for kernel in kernels:
        side = (x.shape[1] - 3) // 2 + 1
        places = [(down, right) for down in range(3) for right in range(3)]
        x = sum(
            weights @ x[:, down : down + 2 * side - 1 : 2, right : right + 2 * side - 1 : 2].reshape(-1, side * side)
            for weights, (down, right) in zip(kernel, places)
        )
        x = (x * (x > 0)).reshape(-1, side, side)
    return head @ x.reshape(x.shape[0], -1)


def _stamp(item):
    stamp = {"slot": slot and slot().name, "ended": time.time_ns()}
    if item < 0:
        # Holds the slot for as long as its neighbours need to get an item of their own, and tells its environment, which bare
        # processes are given too.
        time.sleep(HOLD)
        stamp["env"] = {name: value for name, value in os.environ.items() if not name.startswith(("GPUMUX_", "BENCH_", "CUDA_MPS_"))}
    return stamp


def _product(size):
    framework = _framework()
    key = ("matrix", size)
    if key not in _kept:
        _kept[key] = framework.fill(size, size)
    framework.wait(framework.multiply(_kept[key], _kept[key]))


class _Torch:
    compile = staticmethod(lambda function: function)

    def __init__(self, gpu):
        import torch

        self.version = torch.__version__
        self.device = torch.device("cuda" if gpu else "cpu")
        self.fill = lambda rows, columns: torch.full((rows, columns), 0.5, device=self.device)
        self.multiply = torch.matmul
        self.wait = lambda product: product[0, 0].item()

    def name(self):
        import torch

        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else None

    @staticmethod
    def has_gpu():
        import torch

        return torch.cuda.is_available()


class _Jax:
    def __init__(self, gpu):
        import jax
        import jax.numpy as jnp

        self.version = jax.__version__
        self.devices = jax.devices()
        self.fill = lambda rows, columns: jnp.full((rows, columns), 0.5, jnp.float32)
        self.compile, self.multiply = jax.jit, jax.jit(jnp.matmul)
        self.wait = lambda product: product.block_until_ready()

    def name(self):
        return self.devices[0].device_kind if self.devices[0].platform == "gpu" else None

    @staticmethod
    def has_gpu():
        import jax

        return jax.default_backend() == "gpu"


class _CuPy:
    compile = staticmethod(lambda function: function)

    def __init__(self, gpu):
        import cupy

        self.version = cupy.__version__
        self.fill = lambda rows, columns: cupy.full((rows, columns), 0.5, cupy.float32)
        self.multiply = cupy.matmul
        self.wait = lambda product: product[0, 0].item()

    def name(self):
        import cupy

        return cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()

    @staticmethod
    def has_gpu():
        import cupy

        return cupy.cuda.runtime.getDeviceCount() > 0


class _NumPy:
    compile = staticmethod(lambda function: function)

    def __init__(self, gpu):
        import numpy

        self.version = numpy.__version__
        self.fill = lambda rows, columns: numpy.full((rows, columns), 0.5, numpy.float32)
        self.multiply = numpy.matmul
        self.wait = lambda product: product[0, 0]

    def name(self):
        return None

    @staticmethod
    def has_gpu():
        return False


_CLASSES = {"torch": _Torch, "jax": _Jax, "cupy": _CuPy, "numpy": _NumPy}


def _framework():
    if "framework" not in _kept:
        name = os.environ["BENCH_FRAMEWORK"]
        _kept["gpu"] = _CLASSES[name].has_gpu()
        _kept["framework"] = _CLASSES[name](_kept["gpu"])
    return _kept["framework"]


def _choose():
    """The first framework that reaches a GPU, else the first that calculates on the CPU; and what the others lack.

    BENCH_FRAMEWORK names the only one that is looked at.
    """
    lacking, usable = {}, None
    only = os.environ.get("BENCH_FRAMEWORK")
    for name in [only] if only else FRAMEWORKS:
        if importlib.util.find_spec(name) is None:
            lacking[name] = "not installed"
            continue
        try:
            if _CLASSES[name].has_gpu():
                return name, True, lacking
        except Exception as error:  # an installation that does not fit this machine
            lacking[name] = f"{type(error).__name__}: {error}"[:200]
            continue
        if name == "cupy":
            lacking[name] = "no GPU"
        else:
            usable = usable or name
    return usable, False, lacking


def _probe():
    name, gpu, lacking = _choose()
    found = {
        "interpreter": sys.executable,
        "python": platform.python_version(),
        "framework": name or "",
        "gpu": gpu,
        "lacking": ", ".join(f"{name}: {why}" for name, why in sorted(lacking.items())),
    }
    if name:
        framework = _CLASSES[name](gpu)
        found["version"], found["device"] = str(framework.version), framework.name() or ""
    return found


def _loop(name, start, step):
    """For each number on standard input call the function as often, with the items start, start + step, …: prints their ends."""
    function = globals()[name]
    for line in sys.stdin:
        end = start + step * int(line)
        print(json.dumps([function(item)["ended"] for item in range(start, end, step)]), flush=True)
        start = end


def _bare(name, clients):
    """Processes side by side that loop: each gets every line of standard input, and what they print becomes one list."""
    loops = [
        subprocess.Popen([sys.executable, __file__, "loop", name, str(i), str(clients)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for i in range(clients)
    ]
    for line in sys.stdin:
        for loop in loops:
            loop.stdin.write(line)
            loop.stdin.flush()
        printed = [loop.stdout.readline() for loop in loops]
        if "" in printed:
            sys.exit(loops[printed.index("")].wait() or 1)
        print(f"[{','.join(printed)}]", flush=True)
    for loop in loops:
        loop.stdin.close()
        loop.wait()


def _main(verb, *arguments):
    if verb == "probe":
        print(json.dumps(_probe()))
    elif verb == "loop":
        _loop(arguments[0], int(arguments[1]), int(arguments[2]))
    elif verb == "bare":
        _bare(arguments[0], int(arguments[1]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    _main(*sys.argv[1:])

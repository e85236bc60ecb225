"""As much of PyTorch as tasks.py, gpumux bench and the runtime's cap on torch use."""

import importlib.machinery
import sys
import types

import imitated

__version__ = "2.0+imitation"
uint8, int64 = 1, 8
_pool = imitated.Pool()
_limit, _waiting, _ruined = imitated.TOTAL, [], False


class OutOfMemoryError(RuntimeError):
    __module__ = "torch"


class AcceleratorError(RuntimeError):
    __module__ = "torch"
    error_code = 710


def _refuse(size):
    return OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate {size / (1 << 30):.2f} GiB. GPU 0 has a total capacity of "
        f"{imitated.TOTAL / (1 << 30):.2f} GiB of which 100.00 GiB is free. {_limit / (1 << 30):.2f} GiB allowed; "
        f"Of the allocated memory {_pool.used / (1 << 30):.2f} GiB is allocated by PyTorch"
    )


class _Tensor(imitated.Array):
    device = types.SimpleNamespace(type="cuda")

    def __getitem__(self, index):
        global _ruined
        _ruined = isinstance(index, _Tensor) and index.value >= self.count
        return self


def _make(size, value=0.0, count=1):
    while _waiting:
        _waiting.pop(0)()
    return _Tensor(_pool, size, _limit, _refuse, value, count)


def empty(size, dtype, device):
    return _make(size * dtype)


def zeros(size, device):
    return _make(size * 4)


def full(shape, value, dtype=4, device=None):
    count = 1
    for each in shape:
        count *= each
    return _make(count * dtype, value, count)


def initial_seed():
    return 67280421310721


default_generator = types.SimpleNamespace(seed=lambda: None)


def matmul(a, b):
    return full((a.count, 1), a.value * b.value)


def _conv2d(images, kernels):
    return full((images.count,), kernels.value)


nn = types.SimpleNamespace(functional=types.SimpleNamespace(conv2d=_conv2d))


def device(name):
    return types.SimpleNamespace(type=name)


def _set_fraction(fraction, index):
    global _limit
    _limit = int(fraction * imitated.TOTAL)


def _stats(index):
    """Keeps nothing that is free."""
    used = {"all": {"current": _pool.used, "peak": _pool.peak}}
    return {"allocated_bytes": used, "active_bytes": used, "reserved_bytes": used, "inactive_split_bytes": {"all": {"current": 0, "peak": 0}}}


def _synchronize():
    if _ruined:
        raise AcceleratorError("CUDA error: device-side assert triggered")


class _Memory:
    """Says what is live as torch.cuda.memory's documentation has it, each piece with its line once it records."""

    recording = False

    def _record_memory_history(self, enabled, context, stacks):
        assert (enabled, context, stacks) == ("state", "state", "python")
        self.recording = True

    def _snapshot(self):
        blocks = [{"size": size, "state": "active_allocated", "frames": frames} for size, frames in _pool.pieces.values()]
        return {"segments": [{"device": 0, "blocks": blocks}]}


def _stack():
    """The frames of who allocates, the innermost first."""
    frame, frames = sys._getframe(1), []
    while frame is not None and cuda.memory.recording:
        frames.append({"filename": frame.f_code.co_filename, "line": frame.f_lineno, "name": frame.f_code.co_name})
        frame = frame.f_back
    return frames


_pool.stack = _stack

cuda = types.ModuleType("torch.cuda")
cuda.memory = _Memory()
cuda.__spec__ = importlib.machinery.ModuleSpec("torch.cuda", None)
cuda._lazy_call = _waiting.append
cuda.device_count = lambda: 1
cuda.is_available = lambda: True
cuda.is_initialized = lambda: not _waiting
cuda.empty_cache = lambda: None
cuda.get_device_name = lambda device: "an imitation"
cuda.get_device_properties = lambda index: types.SimpleNamespace(total_memory=imitated.TOTAL)
cuda.memory_reserved = lambda index: _pool.used
cuda.memory_stats_as_nested_dict = _stats
cuda.reset_peak_memory_stats = _pool.reset_peak
cuda.set_per_process_memory_fraction = _set_fraction
cuda.synchronize = _synchronize
sys.modules["torch.cuda"] = cuda

"""As much of CuPy as tasks.py and gpumux bench use."""

import os
import types

import imitated

__version__ = "0.0+imitation"
uint8, float32, float64 = 1, 4, 8
_ruined = False
_pool = imitated.Pool()


class OutOfMemoryError(MemoryError):
    __module__ = "cupy.cuda.memory"


class CUDARuntimeError(RuntimeError):
    __module__ = "cupy_backends.cuda.api.runtime"
    status = 700


_most = int(os.environ.get("CUPY_GPU_MEMORY_LIMIT", imitated.TOTAL))


def _limit():
    return _most


def _refuse(size):
    return OutOfMemoryError(
        f"Out of memory allocating {size:,} bytes (allocated so far: {_pool.used:,} bytes, limit set to: {_limit():,} bytes)."
    )


def empty(size, dtype):
    return imitated.Array(_pool, size * {"uint8": uint8}.get(dtype, dtype), _limit(), _refuse)


def full(shape, value, dtype=float64):
    return imitated.Array(_pool, dtype * shape[0] * shape[1], _limit(), _refuse, value, shape[0] * shape[1])


def matmul(a, b):
    return full((a.count, 1), a.value * b.value, float32)


class RawKernel:
    def __init__(self, source, name):
        assert name in source

    def __call__(self, grid, block, arguments):
        global _ruined
        _ruined = True


class _Device:
    def synchronize(self):
        if _ruined:
            raise CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")


class _Pool:
    """Keeps nothing that is free."""

    def malloc(self, size):
        return empty(size, uint8)

    def free_all_blocks(self):
        pass

    def total_bytes(self):
        return _pool.used

    used_bytes = total_bytes

    def free_bytes(self):
        return 0

    def get_limit(self):
        return _most

    def set_limit(self, size):
        global _most
        _most = size


cuda = types.SimpleNamespace(Device=_Device, get_allocator=lambda: _Pool().malloc, runtime=types.SimpleNamespace(getDeviceCount=lambda: 1, getDeviceProperties=lambda at: {"name": b"an imitation"}))
get_default_memory_pool = get_default_pinned_memory_pool = _Pool

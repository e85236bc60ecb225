"""What the imitated frameworks share: an allocator with a limit over the imitated driver."""

import ctypes
import os
import weakref

TOTAL = 139 << 30

_driver = ctypes.CDLL("libcuda.so.1")
started = False


def _start():
    global started
    if not started:
        made = ctypes.c_void_p()
        assert _driver.cuInit(0) == 0
        assert _driver.cuDevicePrimaryCtxRetain(ctypes.byref(made), 0) == 0
        assert _driver.cuCtxSetCurrent(made) == 0
        started = True


class Pool:
    """The allocator of one framework, which knows nothing of the others'."""

    def __init__(self):
        self.used = self.peak = 0
        self.pieces = {}
        """What is live by its pointer: bytes, and who allocated it."""
        self.stack = list

    def reset_peak(self, device):
        self.peak = self.used

    def free(self, pointer, size):
        self.used -= size
        del self.pieces[pointer]
        _driver.cuMemFree_v2(ctypes.c_uint64(pointer))


class Array:
    def __init__(self, pool, size, limit, refuse, value=0.0, count=1):
        _start()
        if pool.used + size > limit:
            raise refuse(size)
        pointer = ctypes.c_uint64()
        assert _driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0
        pool.used += size
        pool.peak = max(pool.peak, pool.used)
        pool.pieces[pointer.value] = size, pool.stack()
        weakref.finalize(self, pool.free, pointer.value, size)
        self.value, self.count = value, count

    def __getitem__(self, at):
        return self

    def item(self):
        return self.value

    def sum(self):
        return self.value * self.count

    def block_until_ready(self):
        return self

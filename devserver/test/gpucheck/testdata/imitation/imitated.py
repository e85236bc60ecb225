"""What the imitated frameworks share: an allocator with a limit over the imitated driver."""

import ctypes
import os
import weakref

TOTAL = 139 << 30

_driver = ctypes.CDLL("libcuda.so.1")
started = False
used = peak = 0


def _start():
    global started
    if not started:
        made = ctypes.c_void_p()
        assert _driver.cuInit(0) == 0
        assert _driver.cuDevicePrimaryCtxRetain(ctypes.byref(made), 0) == 0
        assert _driver.cuCtxSetCurrent(made) == 0
        started = True


def _free(pointer, size):
    global used
    used -= size
    _driver.cuMemFree_v2(ctypes.c_uint64(pointer))


def reset_peak(device):
    global peak
    peak = used


class Array:
    def __init__(self, size, limit, refuse, value=0.0, count=1):
        global used, peak
        _start()
        if used + size > limit:
            raise refuse(size)
        pointer = ctypes.c_uint64()
        assert _driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0
        used += size
        peak = max(peak, used)
        weakref.finalize(self, _free, pointer.value, size)
        self.value, self.count = value, count

    def __getitem__(self, at):
        return self

    def item(self):
        return self.value

    def sum(self):
        return self.value * self.count

    def block_until_ready(self):
        return self

"""The memory that items need at their peak.

Owns what is measured of them: in a slot on the CPU the kernel's high-water mark of this process, on a device what was live in the
frameworks' allocators. Both start anew after each reading, which the task sees in its own ru_maxrss and max_memory_allocated. The
worker does not read the mark: it would wait for the lock of the task's memory, and keep that memory from a kernel that runs out of it.
Stops for good where the mark cannot be read or reset.
"""

from __future__ import annotations

import os
import resource
from typing import Callable, Optional

from . import allocators

# An item of at least so many seconds has a peak of its own, whose reading costs some 0.1 ms. Of shorter ones, one in _EVERY has the peak
# of all since the last.
LONG = 0.02
_EVERY = 0.05
_NEVER = float("inf")


class Peak:
    """Measures items one after the other. read gives the peak bytes since it was last called, 0 if unknown, None if for ever."""

    def __init__(self, read: Callable[[], Optional[int]]) -> None:
        self.due = 0.0
        """When an item that is not LONG is measured too, by perf_counter."""
        self._read = read

    def measure(self, ended: float) -> int:
        """The peak bytes of the items since the last call, or 0 if unknown; ended is when the last one did."""
        if self.due == _NEVER:
            return 0
        most = self._read()
        self.due = _NEVER if most is None else ended + _EVERY
        return most or 0


def of_device(tell: Callable[[allocators.Usage], None]) -> Peak:
    """What was live in the frameworks' allocators, which tell gets with each reading."""

    def read() -> int:
        now = allocators.usage()
        if now is None:
            return 0
        allocators.reset_peaks()
        tell(now)
        return now.peak

    return Peak(read)


def of_host(single: bool = False) -> Peak:
    """What this process held of the host's memory; single: it was forked for one item, so the mark need not start anew."""
    if single:
        return Peak(lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)
    return Peak(lambda: _reset() or None)


def _reset() -> int:
    """The mark in bytes, which starts anew; 0 if unknown."""
    try:
        at = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
        try:
            status = os.read(at, 1 << 14)
        finally:
            os.close(at)
        # 5 resets the mark and nothing else.
        at = os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(at, b"5")
        finally:
            os.close(at)
        line = status.index(b"VmHWM:")
        return int(status[line + 6 : status.index(b"kB", line)]) << 10
    except (OSError, ValueError):
        return 0

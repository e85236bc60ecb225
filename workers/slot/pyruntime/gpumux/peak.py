"""The peak resident memory of this process, by the kernel's high-water mark.

Owns that mark and resets it after each reading, which the task sees in its own ru_maxrss. The worker does not do it: it would wait for
the lock of the task's memory, and keep that memory from a kernel that runs out of it. Stops for good where the mark cannot be read or
reset.
"""

from __future__ import annotations

import os

# An item of at least so many seconds has a peak of its own, whose reading costs some 0.1 ms. Of shorter ones, one in _EVERY has the peak
# of all since the last.
LONG = 0.02
_EVERY = 0.05
_NEVER = float("inf")


class Peak:
    """Measures items one after the other."""

    def __init__(self, supported: bool) -> None:
        self.due = 0.0 if supported else _NEVER
        """When an item that is not LONG is measured too, by perf_counter."""

    def measure(self, ended: float) -> int:
        """The peak bytes of the items since the last call, or 0 if unknown; ended is when the last one did."""
        if self.due == _NEVER:
            return 0
        most = _reset()
        self.due = ended + _EVERY if most else _NEVER
        return most


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

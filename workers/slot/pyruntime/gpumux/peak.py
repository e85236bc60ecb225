"""The most resident memory that this process held, as the kernel's high-water mark tells.

Owns that mark: sets it back after each reading, which the task sees in its own ru_maxrss. The process does it and not the worker,
which would wait wherever the task holds the lock of its memory, and keep that memory from a kernel that runs out of it. Stops for
good where the kernel does not tell or the mark cannot be set back.
"""

from __future__ import annotations

import os

# An item that takes this many seconds has a peak of its own, whose reading costs some 0.1 ms; of shorter ones, one in _EVERY has the
# peak of all since the last.
LONG = 0.02
_EVERY = 0.05
_NEVER = float("inf")


class Peak:
    """Measures items one after the other."""

    def __init__(self, told: bool) -> None:
        self.due = 0.0 if told else _NEVER
        """When an item that is not LONG is measured too, by perf_counter."""

    def take(self, ended: float) -> int:
        """The bytes of the items since the last call, or 0 where they are not told; ended is when the last one did."""
        if self.due == _NEVER:
            return 0
        most = _take()
        self.due = ended + _EVERY if most else _NEVER
        return most


def _take() -> int:
    try:
        at = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
        try:
            status = os.read(at, 1 << 14)
        finally:
            os.close(at)
        # 5 sets the mark back and touches nothing else.
        at = os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(at, b"5")
        finally:
            os.close(at)
        line = status.index(b"VmHWM:")
        return int(status[line + 6 : status.index(b"kB", line)]) << 10
    except (OSError, ValueError):
        return 0

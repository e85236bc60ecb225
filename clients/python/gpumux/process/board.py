"""The board: memory shared with the worker, in which results lie until the worker reads them. See docs/wire.md.

Owns the layout of that memory. Never sends on the wire and never waits; a caller that finds it full does. Only the main thread of the
process that the worker started uses it, never a forked child.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys

from .raw import Raw

DESCRIPTOR = 4
# The offset of the first record; before it are the two ends: of what is published, and of what the worker has read.
HEAD = 64
_PUBLISHED, _READ = 0, 1
# Size of the value, attempts, run, position in the run, kind of the value, seconds busy, time of the end, end of the output, peak.
_record = struct.Struct("<IIQIIddqQ")
RECORD = _record.size
# Instead of a size: the rest of the memory is unused, and the next record is at HEAD.
_skip = struct.Struct("<I")
SKIP = 0xFFFFFFFF


def inherit(size: int) -> Board | None:
    """The board from the worker, or None where it cannot be used. Closes the descriptor."""
    try:
        # All pages exist from the start, so results do not look like growth of the task's memory.
        memory = mmap.mmap(DESCRIPTOR, size, mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0))
    except (OSError, ValueError):
        return None
    finally:
        try:
            os.close(DESCRIPTOR)
        except OSError:
            pass
    return Board(memory) if sys.byteorder == "little" else None


class Board:
    """The writing end. memory is zeroed and has HEAD bytes plus a multiple of 8."""

    def __init__(self, memory) -> None:
        self._memory = memory
        self._words = memoryview(memory).cast("Q")
        self._capacity = len(memory) - HEAD
        self.largest = self._capacity // 4
        """The largest value that fits, in bytes."""
        self.published = 0
        """How many bytes of records were published in all."""
        # The next record goes to _at, and its offset is _base more; the room ends at _edge.
        self._at = HEAD
        self._base = -HEAD
        self._edge = HEAD

    def add(
        self, run: int, n: int, value: bytes | Raw, attempts: int, busy: float, ended: float, out: int, peak: int = 0
    ) -> bool:
        """Write a record behind the last one, not yet published. False: the worker must read first."""
        size = len(value)
        at = self._at
        after = at + RECORD + (size + 7 & -8)
        if after > self._edge:
            if not self._find_room(after - at):
                return False
            at = self._at
            after = at + RECORD + (size + 7 & -8)
        memory = self._memory
        if type(value) is bytes:
            _record.pack_into(memory, at, size, attempts, run, n, 0, busy, ended, out, peak)
            memory[at + RECORD : at + RECORD + size] = value
        else:
            _record.pack_into(memory, at, size, attempts, run, n, value.kind, busy, ended, out, peak)
            data = at + RECORD + len(value.head)
            memory[at + RECORD : data] = value.head
            memory[data : at + RECORD + size] = value.data
        self._at = after
        return True

    def publish(self) -> int:
        """Let the worker read what was added. It survives this process."""
        self._words[_PUBLISHED] = self.published = end = self._base + self._at
        return end

    def unread(self) -> int:
        """How many bytes the worker has not read."""
        return self.published - self._words[_READ]

    def _find_room(self, need: int) -> bool:
        """Find room for a record, at the beginning where the end of the memory is too near."""
        used = self._base + self._at - self._words[_READ]
        free, left = self._capacity - used, len(self._memory) - self._at
        if not 0 <= used <= self._capacity:
            raise ValueError(f"the worker says that it has read {self._words[_READ]} bytes of {self._base + self._at}")
        if left >= need:
            if free < need:
                return False
        elif free < left + need:
            return False
        else:
            if left:
                _skip.pack_into(self._memory, self._at, SKIP)
            self._base += self._capacity
            self._at = HEAD
            free, left = free - left, self._capacity
        self._edge = self._at + min(free, left)
        return True

"""Finds what an import left in its process that a fork would break, or that all children would share.

Owns the rules. Never changes anything. Ends when it has looked.
"""

from __future__ import annotations

import os
from typing import Collection

from .devices import FILES, open_files

# Whoever opens these sees the same.
_HARMLESS = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/full")
# What the worker opens for the runtime.
_RUNTIME = "/memfd:gpumux-"


def unfit(known: Collection[int], opened: str = "", devices: tuple = FILES) -> str:
    """Why this process must not be forked, with the remedy, or nothing. known are the descriptors from before the import, opened is where
    that opened a device, if that is known."""
    files = [path for fd, path in open_files().items() if fd not in known]
    mapped = _mapped()
    threads = os.listdir("/proc/self/task")
    device = next((path for path in files + [path for path, _ in mapped] if path.startswith(devices)), "")
    if device:
        where = f" {opened}" if opened else ""
        return f"its import uses the device{where} ({device} is open), which a forked process cannot go on with; use the device in the function"
    if len(threads) > 1:
        return f"its import leaves {len(threads) - 1} threads running, which a forked process would lack; start them in the function"
    with open(f"/proc/self/task/{threads[0]}/children") as file:
        children = file.read().split()
    if children:
        return f"its import leaves process {children[0]} running, which belongs to no item; start it in the function"
    for path in files:
        if not _harmless(path):
            return f"its import leaves {path} open, which the items would share; open it in the function, or close it"
    for path, shared in mapped:
        if shared and not _harmless(path):
            return f"its import leaves memory that all items would share ({path}); make it in the function"
    return ""


def _mapped() -> list[tuple[str, bool]]:
    """The path of each mapping, and whether processes share what is written there."""
    with open("/proc/self/maps", errors="surrogateescape") as file:
        lines = [line.rstrip("\n").split(maxsplit=5) for line in file]
    # range, permissions, offset, device, inode, path
    return [(fields[5] if len(fields) > 5 else "", "w" in fields[1] and "s" in fields[1]) for fields in lines]


def _harmless(path: str) -> bool:
    return path in _HARMLESS or path.startswith(_RUNTIME)

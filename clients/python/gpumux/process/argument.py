"""The file of a map's argument that has arrays in it: they lie there as in memory, so that all processes of a host share them.

Owns its format: HEAD, a line of JSON about the arrays, the JSON around them, and each array where it is aligned. Never changes it.
"""

from __future__ import annotations

import json
import mmap
from typing import Any, BinaryIO

from . import item
from .arrays import fetch, known
from .encode import encode, taking

HEAD = b"\x93gpumux 1\n"
_ALIGNED = 64


class _Arrays:
    """The arrays of a value, in the order of its JSON, where mark stands for each."""

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.hook = taking(self.take)
        self.restart()

    def restart(self) -> None:
        """Forget all arrays."""
        self.found: list[Any] = []

    def take(self, value: Any) -> str | None:
        """The mark, or None where value is to be JSON itself."""
        array = fetch(value) if known(type(value)) else None
        if array is None or array.ndim == 0:
            return None
        self.found.append(array)
        return self.mark


def write(value: Any, file: BinaryIO) -> None:
    """Write an argument: as JSON, or with arrays. Raises TypeError where JSON cannot hold something else of it."""
    arrays = _Arrays("gpumux-array")
    while True:
        text = encode(value, "arg", arrays=arrays)
        pieces = text.split(f'"{arrays.mark}"'.encode())
        if len(pieces) == len(arrays.found) + 1:
            break
        arrays = _Arrays(arrays.mark + "'")  # the argument has the mark in a text of its own
    if not arrays.found:
        file.write(text)
        return
    import numpy

    text, about, end = f'{{"{arrays.mark}":0}}'.encode().join(pieces), [], 0
    for array in arrays.found:
        about.append([array.dtype.newbyteorder("<").str, array.shape, end])
        end = _next(end + array.nbytes)
    line = json.dumps({"mark": arrays.mark, "text": len(text), "arrays": about}).encode() + b"\n"
    file.write(HEAD + line + text)
    begin = _next(len(HEAD + line + text))
    for array, (kind, _, at) in zip(arrays.found, about):
        file.seek(begin + at)
        file.write(numpy.ascontiguousarray(array, kind).reshape(-1).view("u1"))
    file.truncate(begin + end)


def read(path: str) -> Any:
    """The argument in a file, its arrays read-only parts of the file."""
    with open(path, "rb") as file:
        if file.read(len(HEAD)) != HEAD:
            file.seek(0)
            return json.loads(item.numbers(file.read().decode()))
        about = json.loads(file.readline())
        text = file.read(about["text"])
        begin = _next(file.tell())
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        import numpy
    except ImportError:
        raise ImportError("the map's arg has arrays, and this Python has no NumPy: pip install numpy, or give the arg as lists") from None

    def restored(kind: str, shape: list[int], at: int) -> Any:
        array = numpy.empty(shape, kind)
        if array.size:
            return numpy.frombuffer(mapped, kind, array.size, begin + at).reshape(shape)
        array.flags.writeable = False
        return array

    arrays = iter([restored(*each) for each in about["arrays"]])
    return item.rebuilt(text, lambda found: next(arrays) if about["mark"] in found else found)


def _next(end: int) -> int:
    return -(-end // _ALIGNED) * _ALIGNED

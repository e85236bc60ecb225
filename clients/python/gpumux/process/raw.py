"""Values that travel as raw bytes instead of as JSON: bytes, and arrays of numbers. The worker writes the JSON.

Owns which values these are. The result is the same as that of encode.py, which encodes all others. Never changes a value. Items with
arrays come in the same form; item.py reads all others.
"""

from __future__ import annotations

import importlib.util
import os
import struct
import sys
from typing import Any, Callable

from . import item
from .arrays import fetch, known
from .encode import encode, encode_all, taking

# Kinds; docs/wire.md lists them.
BYTES, ARRAY, MIXED = 1, 2, 3
# encode.py, which has the limit and its error, gets what may be larger as JSON.
_MOST_TEXT = 1 << 28
# The most bytes of a number as JSON with its separator, by the letter of its type.
_WIDTH = {"b": 6, "i": 21, "u": 21, "f": 26}
# What stands for an array in the JSON around it. No task has it in a string of its own.
_MARK = "gpumux-array-" + os.urandom(16).hex()
_QUOTED = f'"{_MARK}"'.encode()
_PLACE = f'{{"{_MARK}":0}}'.encode()
_size = struct.Struct("<Q").pack


class Raw:
    """A value as raw bytes: its description, and the bytes themselves."""

    __slots__ = ("kind", "head", "data")

    def __init__(self, kind: int, head: bytes, data: Any) -> None:
        self.kind, self.head, self.data = kind, head, data

    def __len__(self) -> int:
        return len(self.head) + len(self.data)


def pack(value: Any) -> bytes | Raw:
    """value as JSON or, where the worker is to write that, as Raw. Raises what encode raises."""
    kind = type(value)
    try:
        way = _ways[kind]
    except KeyError:
        way = _ways[kind] = _way(kind)
    if way is not None:
        packed = way(value)
        if packed is not None:
            return packed
    return encode(value)


def pack_all(values: list) -> list:
    """The values of a micro-batch for the wire, each or the exception of its encoding."""
    found = encode_all(values) if values and _PLAIN.issuperset(map(type, values)) else None
    return pack_each(values, pack) if found is None else found


def pack_each(values: list, pack: Callable[[Any], Any]) -> list:
    answers: list = []
    for value in values:
        try:
            answers.append(pack(value))
        except Exception as error:
            answers.append(error)
    return answers


def reads() -> bool:
    """Whether read can make arrays, that is whether NumPy is installed. It is not imported before such an item comes."""
    return bool(sys.modules.get("numpy") or importlib.util.find_spec("numpy"))


def read(value: memoryview | Raw) -> Any:
    """The item that came as value, its arrays as NumPy's, which own their memory. Raises what item.read raises."""
    if type(value) is memoryview:
        return item.read(value)
    if value.kind == ARRAY:
        return _restored(value.data)
    pieces, end = [], 0
    while end < len(value.data):
        begin = end + 8
        end = begin + int.from_bytes(value.data[end:begin], "little")
        pieces.append(value.data[begin:end])
    arrays = map(_restored, pieces[1::2])
    return item.rebuilt(_PLACE.join(pieces[::2]), lambda found: next(arrays) if _MARK in found else found)


def read_all(values: list) -> list:
    """The items of a micro-batch."""
    return item.read_all(values) if _VIEWS.issuperset(map(type, values)) else [read(value) for value in values]


def _restored(data: memoryview) -> Any:
    """The array that _array has described. It may be changed, and another try gets it as it was."""
    import numpy

    letter, size, dimensions = struct.unpack_from("<cBBx", data)
    shape = struct.unpack_from(f"<{dimensions}Q", data, 4)
    return numpy.frombuffer(data, f"<{letter.decode()}{size}", offset=4 + 8 * dimensions).reshape(shape).copy()


def split(values: Any) -> list | None:
    """The rows of a micro-batch's array, each an array, or None where they are no arrays of numbers."""
    array = fetch(values)
    if array is None or array.ndim < 2:
        return None
    return list(array)


def _way(kind: type) -> Callable[[Any], bytes | Raw | None] | None:
    if issubclass(kind, (bytes, bytearray)):
        return _bytes
    if kind is memoryview:
        return _view
    return _array if known(kind) else _within


def _bytes(value: Any) -> Raw | None:
    return Raw(BYTES, b"", value) if 0 < len(value) < _MOST_TEXT // 2 else None


def _view(value: memoryview) -> Raw | None:
    try:
        return _bytes(value.cast("B") if value.c_contiguous else value.tobytes())
    except (TypeError, ValueError):
        return None


def _array(value: Any, room: int = _MOST_TEXT) -> Raw | None:
    array = fetch(value)
    if array is None or array.ndim == 0:
        return None
    # An empty one may have more lists than bytes.
    if array.size == 0 or _text(array) > room:
        return None
    dtype = array.dtype
    head = struct.pack(f"<cBBx{array.ndim}Q", dtype.kind.encode(), dtype.itemsize, array.ndim, *array.shape)
    # This swaps another byte order, and copies another memory order.
    array = sys.modules["numpy"].ascontiguousarray(array, dtype.newbyteorder("<"))
    return Raw(ARRAY, head, memoryview(array).cast("B"))


def _text(array: Any) -> int:
    """The most bytes that an array takes as JSON."""
    return array.size * (_WIDTH[array.dtype.kind] + 3 * array.ndim)


def _within(value: Any) -> bytes | Raw | None:
    """A value that may hold arrays."""
    if "numpy" not in sys.modules:
        return None
    try:
        text = encode(value, arrays=_taken)
        if not _taken.arrays:
            return text
        texts = text.split(_QUOTED)
        if len(texts) != len(_taken.arrays) + 1:
            return None
        pieces = [_size(len(texts[0])), texts[0]]
        for raw, text in zip(_taken.arrays, texts[1:]):
            pieces += _size(len(raw)), raw.head, raw.data, _size(len(text)), text
        return Raw(MIXED, b"", b"".join(pieces))
    finally:
        if _taken.arrays:
            _taken.restart()


class _Taken:
    """The arrays of a value, in the order of its JSON."""

    def __init__(self) -> None:
        self.hook = taking(self.take)
        self.restart()

    def restart(self) -> None:
        """Forget all arrays."""
        self.arrays: list[Raw] = []
        self.room = _MOST_TEXT

    def take(self, value: Any) -> str | None:
        """What stands for value in the JSON, or None where it is to be JSON itself."""
        raw = _array(value, self.room) if known(type(value)) else None
        if raw is None:
            return None
        self.room -= len(raw.data) * 26
        self.arrays.append(raw)
        return _MARK


# Only the main thread packs.
_taken = _Taken()


# The types of values that are JSON of their own, whatever they hold.
_PLAIN = frozenset((dict, list, tuple, str, int, float, bool, type(None)))
_VIEWS = frozenset((memoryview,))
_ways: dict[type, Callable[[Any], bytes | Raw | None] | None] = {int: None, float: None, str: None, bool: None, type(None): None}

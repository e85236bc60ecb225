"""Values that travel as raw bytes instead of as JSON: bytes, and arrays of numbers. The worker writes the JSON.

Owns which values these are. The result is the same as that of encode.py, which encodes all others. Never changes a value.
"""

from __future__ import annotations

import struct
import sys
from typing import Any, Callable

from .encode import encode

# Kinds; docs/wire.md lists them.
BYTES, ARRAY = 1, 2
# encode.py, which has the limit and its error, gets what may be larger as JSON.
_MOST_TEXT = 1 << 28
# The most bytes of a number as JSON with its separator, by the letter of its type.
_WIDTH = {"b": 6, "i": 21, "u": 21, "f": 26}
_SIZES = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8)}


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
        raw = way(value)
        if raw is not None:
            return raw
    return encode(value)


def split(values: Any) -> list | None:
    """The rows of a micro-batch's array, each an array, or None where they are no arrays of numbers."""
    array = _numpy(values)
    if array is None or array.ndim < 2:
        return None
    return list(array)


def _way(kind: type) -> Callable[[Any], Raw | None] | None:
    if issubclass(kind, (bytes, bytearray)):
        return _bytes
    if kind is memoryview:
        return _view
    return _array if _module(kind) in _FETCH else None


def _bytes(value: Any) -> Raw | None:
    return Raw(BYTES, b"", value) if 0 < len(value) < _MOST_TEXT // 2 else None


def _view(value: memoryview) -> Raw | None:
    try:
        return _bytes(value.cast("B") if value.c_contiguous else value.tobytes())
    except (TypeError, ValueError):
        return None


def _array(value: Any) -> Raw | None:
    array = _numpy(value)
    if array is None or array.ndim == 0:
        return None
    dtype = array.dtype
    # An empty one may have more lists than bytes.
    if array.size == 0 or array.size * (_WIDTH[dtype.kind] + 3 * array.ndim) > _MOST_TEXT:
        return None
    head = struct.pack(f"<cBBx{array.ndim}Q", dtype.kind.encode(), dtype.itemsize, array.ndim, *array.shape)
    # This swaps another byte order, and copies another memory order.
    array = sys.modules["numpy"].ascontiguousarray(array, dtype.newbyteorder("<"))
    return Raw(ARRAY, head, memoryview(array).cast("B"))


def _numpy(value: Any) -> Any:
    """value as a NumPy array of numbers, fetched from its device, or None where that is not simple."""
    fetch = _FETCH.get(_module(type(value)))
    if fetch is None or "numpy" not in sys.modules:
        return None
    try:
        array = fetch(value)
    except Exception:
        # encode.py describes the error.
        return None
    if type(array) is not sys.modules["numpy"].ndarray:
        return None
    return array if array.dtype.itemsize in _SIZES.get(array.dtype.kind, ()) else None


# How to copy each library's arrays to the host. Subclasses have rules of their own, which encode.py respects.
_FETCH: dict[str, Callable[[Any], Any]] = {
    "numpy.ndarray": lambda value: value,
    "torch.Tensor": lambda value: value.detach().cpu().numpy(),
    "torch.nn.parameter.Parameter": lambda value: value.detach().cpu().numpy(),
    "cupy.ndarray": lambda value: value.get(),
    "jaxlib.ArrayImpl": lambda value: sys.modules["numpy"].asarray(value),
}


def _module(kind: type) -> str:
    module = kind.__module__
    # The module of a class differs between releases of its library.
    library = module.partition(".")[0]
    if library in ("cupy", "jaxlib"):
        module = library
    return f"{module}.{kind.__qualname__}"


_ways: dict[type, Callable[[Any], Raw | None] | None] = {int: None, float: None, str: None, dict: None, list: None}

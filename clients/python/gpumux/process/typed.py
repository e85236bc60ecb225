"""Items and values of any type, and items that are a call's arguments: the client's map with pickle=True, and its starmap.

Owns how they look in JSON on both sides, and what a slot makes of them. The client asks for it in the slot's environment: a worker
that others send items to never unpickles them.
"""

from __future__ import annotations

import base64
import functools
import io
import os
import pickle
import sys
from typing import Any, Callable

from . import encode, raw

# Its value is "arguments", "pickle" or nothing, a space, and the name that the module of the client's program has in slots.
VARIABLE = "_GPUMUX_ITEMS"
PROTOCOL = 5
# The fields of an item. Neither is another map's: what is pickled is text there.
ITEM, ARGUMENTS = "gpumux.item", "gpumux.arguments"


class Arguments(tuple):
    """An item that is the arguments of one call."""


def content(found: Any, loads: Callable[[bytes], Any]) -> Any:
    """The item that found stands for, where it has one of these fields. What is a text there is pickled, as is the value of an
    earlier stage."""
    if type(found) is not dict:
        return loads(base64.b64decode(found)) if _asked == "pickle" and isinstance(found, str) else found
    for field in ITEM, ARGUMENTS:
        if field in found:
            inside = found[field]
            value = loads(base64.b64decode(inside)) if isinstance(inside, str) else inside
            return Arguments(value) if field is ARGUMENTS else value
    return found


class _Unpickler(pickle.Unpickler):
    """Finds the classes of the client's program where the slot has them."""

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(_main if _main and module == "__main__" else module, name)
        return functools.partial(_once, found) if name == "_class_setstate" else found


def _once(fill: Callable[[Any, Any], Any], kind: type, state: Any) -> type:
    """Fill a class that came by value, but not again with each item that has it."""
    if kind not in _filled:
        _filled.add(kind)
        fill(kind, state)
    return kind


_filled: set[type] = set()


def loads(data: bytes) -> Any:
    """What the client has pickled."""
    return _Unpickler(io.BytesIO(data)).load()


def dumps(value: Any, what: str) -> bytes:
    """value pickled, or a TypeError that says what it is."""
    try:
        # Classes that came by value go back by value.
        return sys.modules.get("cloudpickle", pickle).dumps(value, PROTOCOL)
    except Exception as error:
        raise TypeError(f"the {what}, a {type(value).__qualname__}, cannot be pickled: {error}") from error


# What the client of this slot asked for.
_asked, _, _main = os.environ.get(VARIABLE, "").partition(" ")


def read(value: memoryview | raw.Raw) -> Any:
    """The item that came as value. Raises what raw.read and pickle raise."""
    return content(raw.read(value), loads)


def read_all(values: list) -> list:
    """The items of a micro-batch."""
    return [content(found, loads) for found in raw.read_all(values)]


def pack(value: Any) -> Any:
    """value for the wire, pickled where the client asked for that."""
    return raw.pack(dumps(value, "result") if _asked == "pickle" else value)


def pack_all(values: list) -> list:
    """The values of a micro-batch for the wire, each or the exception of its encoding."""
    return raw.pack_each(values, pack)


if not _asked:
    read, pack, read_all, pack_all = raw.read, raw.pack, raw.read_all, raw.pack_all


def rows(values: Any) -> list:
    """The values of a micro-batch as a list: the rows of a table, those of an array as arrays where they can."""
    if type(values) is list:
        return values
    from . import tables

    table = tables.rows(values, f"a batch function returned {encode.a_type(type(values))}")
    if table is not None:
        return list(table)
    if _asked == "pickle" and getattr(values, "ndim", 0):
        return list(values)
    return raw.split(values) or encode.rows(values)


def spread(function: Callable[..., Any]) -> Callable[..., Any]:
    """function, called with the arguments that an item is. One that takes a list of items gets each as a tuple."""
    if not _asked or hasattr(function, "__gpumux_batch__"):
        return function

    @functools.wraps(function)
    def call(given: Any) -> Any:
        return function(*given) if type(given) is Arguments else function(given)

    return call

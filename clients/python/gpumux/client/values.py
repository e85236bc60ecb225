"""Pickles items for slots, and unpickles what comes back.

Owns that the same item is the same bytes whenever a script runs, so that its map is found again, and that the classes of the program
are its own when they come back.
"""

from __future__ import annotations

import base64
import functools
import io
import pickle
import sys
from typing import Any, Callable

from ..process import typed
from ..process.typed import PROTOCOL
from . import function as functions
from . import steady

# What a pickle begins a set with, and a frozen one. Other bytes may look so, which costs time alone.
_SETS = b"\x8f", b"\x91"


def dumps(value: Any, name: str, imports: bool) -> bytes:
    """value pickled, or a TypeError that says what its name is. imports is whether slots import the program's own module."""
    try:
        data = pickle.dumps(value, PROTOCOL)
        known = functions.known(data, imports)
        if known and not any(byte in data for byte in _SETS):
            return data
        if known and imports:
            return steady.dumps(value, steady.Pickler, PROTOCOL)
    except Exception as error:
        return _by_value(value, name, error)
    return _by_value(value, name, None)


def _by_value(value: Any, name: str, why: Any) -> bytes:
    try:
        from .byvalue import Pickler
    except ImportError:
        if why is None:
            return steady.dumps(value, steady.Pickler, PROTOCOL)
        raise TypeError(f"{name} cannot be pickled: {why}; with cloudpickle more can: pip install cloudpickle") from why
    try:
        return steady.dumps(value, Pickler, PROTOCOL)
    except Exception as error:
        raise TypeError(f"{name} cannot be pickled: {error}") from error


def loads(data: bytes) -> Any:
    """What a slot has pickled."""
    return _Unpickler(io.BytesIO(data)).load()


def read(value: str) -> Any:
    """A value that a slot has pickled."""
    return loads(base64.b64decode(value))


def item(found: Any) -> Any:
    """An item as it was before it was written."""
    value = typed.content(found, loads)
    return tuple(value) if type(value) is typed.Arguments else value


class _Unpickler(pickle.Unpickler):
    """Finds the classes of the program in the program. In slots its module has a name of its own, or they came by value."""

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class("__main__" if module == functions.main() and module not in sys.modules else module, name)
        return functools.partial(_fill, found) if name == "_class_setstate" else found


def _fill(fill: Callable[[Any, Any], Any], kind: type, state: Any) -> type:
    """Fill a class that came by value, unless it is the program's own."""
    return kind if functions.found(sys.modules["__main__"], kind.__qualname__) is kind else fill(kind, state)

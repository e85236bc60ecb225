"""Pickles a function by value: the same function is the same bytes in every process, so that its map is found again.

Owns what would differ between processes of one Python version: the order of sets and of imports, which texts are one object,
cloudpickle's random numbers of classes, and the names of a notebook's cells. Any unpickler loads it. It needs cloudpickle.
"""

from __future__ import annotations

import io
import os
import pickle
import re
import types
from typing import Any

import cloudpickle

_NUMBER = re.compile("[0-9a-f]{32}")


def dumps(function: Any) -> bytes:
    out = io.BytesIO()
    _Pickler(out, protocol=4).dump(function)
    return out.getvalue()


class _Pickler(pickle._Pickler):
    """cloudpickle's reductions, written in Python: the pickler in C asks nobody how it writes sets and texts."""

    dispatch = dict(pickle._Pickler.dispatch)

    def __init__(self, out: Any, protocol: int) -> None:
        super().__init__(out, protocol)
        self._cloud = cloudpickle.CloudPickler(out, protocol)
        self._texts: dict[str, str] = {}
        table = self._cloud.dispatch_table
        self.dispatch_table = table.new_child({types.CodeType: lambda code: table[types.CodeType](_steady(code))})

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, (type, types.FunctionType)):
            return NotImplemented
        reduced = self._cloud.reducer_override(value)
        if isinstance(value, types.FunctionType) and reduced is not NotImplemented:
            _, slots = reduced[2]
            slots.get("_cloudpickle_submodules", []).sort(key=lambda module: module.__name__)
        return reduced

    def save_reduce(self, func: Any, args: Any, *rest: Any, **named: Any) -> None:
        if getattr(func, "__module__", None) == cloudpickle.cloudpickle.__name__:
            args = tuple(None if isinstance(each, str) and _NUMBER.fullmatch(each) else each for each in args)
        super().save_reduce(func, args, *rest, **named)

    def _save_text(self, text: str) -> None:
        first = self._texts.setdefault(text, text)
        if id(first) in self.memo:
            self.write(self.get(self.memo[id(first)][0]))
        else:
            self.save_str(first)

    def _save_set(self, values: set) -> None:
        self.write(pickle.EMPTY_SET)
        self.memoize(values)
        self.write(pickle.MARK)
        for each in sorted(values, key=_order):
            self.save(each)
        self.write(pickle.ADDITEMS)

    def _save_frozenset(self, values: frozenset) -> None:
        self.save_reduce(frozenset, (sorted(values, key=_order),), obj=values)

    dispatch.update({str: _save_text, set: _save_set, frozenset: _save_frozenset})


def _order(value: Any) -> str:
    """Where value stands in a set, whatever its hash: its type, and what it prints as."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, (tuple, frozenset)):
        parts = [_order(each) for each in value]
        return f"{kind} {sorted(parts) if isinstance(value, frozenset) else parts}"
    return f"{kind} {getattr(value, '__qualname__', None) or repr(value)}"


def _steady(code: types.CodeType) -> types.CodeType:
    """Code without the name that a notebook gives a cell's file, which another kernel gives anew."""
    if os.path.isfile(code.co_filename) and "ipykernel_" not in code.co_filename:
        return code
    return code.replace(co_filename="<notebook>")

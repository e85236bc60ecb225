"""Pickles a function by value: the same function is the same bytes in every process, so that its map is found again.

Owns what would differ between processes of one Python version, beside what steady.py has: the order of imports, cloudpickle's random
numbers of classes, and the names of a notebook's cells. Any unpickler loads it. It needs cloudpickle.
"""

from __future__ import annotations

import os
import re
import sys
import types
from typing import Any, Optional

import cloudpickle
from cloudpickle import cloudpickle as tracker

from . import steady
from .function import found

_NUMBER = re.compile(r"[0-9a-f]{32}|__main__\..*")


class Pickler(steady.Pickler):
    """cloudpickle's reductions. A class of the program's own module is one class on both sides, in all that is pickled by value."""

    def __init__(self, out: Any, protocol: int) -> None:
        super().__init__(out, protocol)
        self._cloud = cloudpickle.CloudPickler(out, protocol)
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
        if getattr(func, "__module__", None) == tracker.__name__:
            number = _number(named.get("obj"))
            args = tuple(number if isinstance(each, str) and _NUMBER.fullmatch(each) else each for each in args)
        super().save_reduce(func, args, *rest, **named)


def _number(kind: Any) -> Optional[str]:
    """What stands for cloudpickle's number of a class: the name of one that the program has under it, else nothing."""
    name = getattr(kind, "__qualname__", "")
    if not isinstance(kind, type) or found(sys.modules["__main__"], name) is not kind:
        return None
    number = f"__main__.{name}"
    tracker._DYNAMIC_CLASS_TRACKER_BY_ID[number] = kind
    return number


def _steady(code: types.CodeType) -> types.CodeType:
    """Code without the name that a notebook gives a cell's file, which another kernel gives anew."""
    if os.path.isfile(code.co_filename) and "ipykernel_" not in code.co_filename:
        return code
    return code.replace(co_filename="<notebook>")

"""Turns inputs into items."""

from __future__ import annotations

import itertools
import json
import logging
import os
from collections.abc import Mapping
from numbers import Real
from typing import Any, Callable, Iterable, Iterator, Optional, Sequence

from ..process import tables, typed
from ..process.encode import a_type, encode
from . import values

_log = logging.getLogger("gpumux")


# The largest number, and the most items, that the command counts with.
_MOST = (1 << 63) - 1
Write = Callable[[Any, str], bytes]


def given(items: Any, source: Any, write: Write = encode, ranges: bool = True) -> tuple[list[str], Optional[Iterator[bytes]], Optional[int]]:
    """The flags that say where the items are, what goes to standard input, and how many they are where that is known. ranges is whether
    numbers in a row are a flag."""
    if (items is None) == (source is None):
        raise TypeError("give either items, or source= with a file or a URL")
    if source is not None:
        return ["--in", os.fspath(source)], None, None
    if isinstance(items, Calls):
        return ["--in", "-"], lines(items.each, write), items.total
    each = rows(items)
    total = _count(items)
    if ranges and isinstance(items, range) and items.step == 1 and total and -_MOST <= items.start and items.stop <= _MOST:
        return ["--range", f"{items.start}:{items.stop}"], None, total
    return ["--in", "-"], lines(each, write), total


def lines(items: Iterable[Any], write: Write) -> Iterator[bytes]:
    """A line of JSON per item. Errors name the item's position."""
    for index, item in enumerate(items):
        yield write(item, f"items[{index}]") + b"\n"


def as_json(arguments: bool) -> Write:
    """Writes items, or the arguments that each is, and warns of the first one that JSON changes."""
    told = False

    def write(item: Any, name: str) -> bytes:
        nonlocal told
        try:
            text = encode(item, name)
        except TypeError as error:
            what, _, _ = str(error).partition("; return ")
            raise TypeError(f"{what}; give pickle=True, with which items may be anything that pickle takes") from None
        change = None if told else _change(item, name)
        if change is not None:
            told = True
            _log.warning("%s; with pickle=True items and values stay what they are", change)
        return text

    def spread(item: Any, name: str) -> bytes:
        return b'{"%s":%s}' % (typed.ARGUMENTS.encode(), write(list(_arguments(item, name)), name))

    return spread if arguments else write


def pickled(arguments: bool, imports: bool, key: Optional[str]) -> Write:
    """Writes items that are pickled, or the arguments that each is, beside the field of each item that is its key."""

    def write(item: Any, name: str) -> bytes:
        data = values.dumps(_arguments(item, name) if arguments else item, name, imports)
        line = {typed.ARGUMENTS if arguments else typed.ITEM: data}
        if key is not None and isinstance(item, Mapping) and key in item:
            line[key] = item[key]
        return encode(line, name)

    return write


class Calls:
    """Items that are the arguments of one call each."""

    def __init__(self, each: Iterable[Any], total: Optional[int]) -> None:
        self.each, self.total = each, total

    @classmethod
    def of(cls, items: Any) -> "Calls":
        return cls(rows(items), _count(items))


def together(iterables: Sequence[Any]) -> Calls:
    """The items of several iterables that belong together, as zip gives them. Raises ValueError where one has fewer."""
    counts = [_count(each) for each in iterables]
    known = [count for count in counts if count is not None]
    if len(set(known)) > 1:
        raise ValueError(f"the iterables have {', '.join(map(str, known))} items; give as many of each")
    return Calls(_zipped([rows(each) for each in iterables]), min(known, default=None))


def _count(items: Any) -> Optional[int]:
    try:
        return len(items) if hasattr(type(items), "__len__") else None
    except OverflowError:
        raise ValueError(f"items is {items!r}, which has more than {_MOST:,} items; give fewer") from None


def _zipped(iterables: Sequence[Iterable[Any]]) -> Iterator[tuple]:
    end = object()
    for index, each in enumerate(itertools.zip_longest(*iterables, fillvalue=end)):
        over = [n for n, item in enumerate(each, 1) if item is end]
        if over:
            raise ValueError(f"iterable {over[0]} of {len(each)} ends after {index} items, and another goes on; give as many of each")
        yield each


def _arguments(item: Any, name: str) -> tuple:
    try:
        return tuple(item)
    except TypeError:
        raise TypeError(f"{name} is {a_type(type(item))}; gpumux.starmap takes the arguments of each call as a tuple") from None


def _change(value: Any, path: str) -> Optional[str]:
    """What JSON changes first in a value, if anything."""
    kind = type(value)
    if kind is dict:
        odd = next((key for key in value if type(key) is not str), None)
        if odd is not None:
            return f"{path} has the key {odd!r}, which JSON makes the text {json.dumps(str(odd))}"
        inside: Any = value.items()
    elif kind is list:
        inside = enumerate(value)
    elif kind in _PLAIN or isinstance(value, (str, Real)):
        return None
    else:
        made = type(json.loads(encode(value)))
        return f"{path} is {a_type(kind)}, which JSON makes a {made.__name__}" if made in (str, list, dict) else None
    if _PLAIN.issuperset(map(type, value.values() if kind is dict else value)):
        return None
    changes = (_change(each, f"{path}[{step!r}]") for step, each in inside)
    return next((change for change in changes if change is not None), None)


_PLAIN = frozenset((str, int, float, bool, type(None)))


def rows(items: Any) -> Iterable[Any]:
    """The rows of a table as dicts, the values of a column, else what iterating gives. Raises TypeError for other things."""
    kind, what = type(items), f"items is {a_type(type(items))}"
    if isinstance(items, (str, bytes, bytearray)):
        raise TypeError("items is a text, whose items would be its letters; give a list, or source= for a file or a URL")
    if isinstance(items, Mapping):
        raise TypeError(f"{what}, whose items would be its keys; give list(items.values()) or list(items.items())")
    if isinstance(items, (set, frozenset)):
        raise TypeError(f"{what}, which has no order; give sorted(items)")
    if getattr(items, "shape", None) == ():
        raise TypeError(f"{what} without dimensions, a single value; give a list")
    table = tables.rows(items, what)
    if table is not None:
        return table
    unknown = hasattr(kind, "__arrow_c_stream__") and not hasattr(kind, "tolist")
    if unknown or not hasattr(kind, "__iter__") and not (hasattr(kind, "__getitem__") and hasattr(kind, "__len__")):
        raise TypeError(f"{what}; give a list, an array, a table of pandas, Arrow or Polars, or any iterable")
    return items

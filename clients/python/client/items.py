"""Turns inputs into items."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from typing import Any, Callable, Iterable, Iterator, Optional

from ..encode import encode, type_name


def given(items: Any, source: Any) -> tuple[list[str], Optional[Iterator[bytes]], Optional[int]]:
    """The flags that say where the items are, what goes to standard input, and how many they are where that is known."""
    if (items is None) == (source is None):
        raise TypeError("give either items, or source= with a file or a URL")
    if source is not None:
        return ["--in", os.fspath(source)], None, None
    each = _each(items)
    if isinstance(items, range) and items.step == 1 and len(items) > 0:
        return ["--range", f"{items.start}:{items.stop}"], None, len(items)
    total = len(items) if hasattr(type(items), "__len__") else None
    return ["--in", "-"], lines(each), total


def lines(items: Iterable[Any]) -> Iterator[bytes]:
    """A line of JSON per item. Errors name the item's position."""
    for index, item in enumerate(items):
        yield encode(item, f"items[{index}]") + b"\n"


def _each(items: Any) -> Iterable[Any]:
    """The rows of a table as dicts, the values of a column, else what iterating gives. Raises TypeError for other things."""
    kind, what = type(items), f"items is a {type_name(type(items))}"
    if isinstance(items, (str, bytes, bytearray)):
        raise TypeError("items is a text, whose items would be its letters; give a list, or source= for a file or a URL")
    if isinstance(items, Mapping):
        raise TypeError(f"{what}, whose items would be its keys; give list(items.values()) or list(items.items())")
    if isinstance(items, (set, frozenset)):
        raise TypeError(f"{what}, which has no order; give sorted(items)")
    if getattr(items, "shape", None) == ():
        raise TypeError(f"{what} without dimensions, a single value; give a list")
    if hasattr(kind, "slice") and hasattr(kind, "to_pylist"):
        # Arrow's tables, batches, arrays and chunked arrays.
        _once(getattr(items, "column_names", ()), what)
        return _slices(items, kind.to_pylist)
    if hasattr(kind, "slice") and hasattr(kind, "to_list"):
        # polars.Series
        return _slices(items, kind.to_list)
    if hasattr(kind, "iter_rows"):
        # polars.DataFrame
        return items.iter_rows(named=True)
    if hasattr(kind, "itertuples"):
        # pandas.DataFrame
        names = list(items.columns)
        _once(names, what)
        return (dict(zip(names, row)) for row in items.itertuples(index=False, name=None))
    unknown = hasattr(kind, "__arrow_c_stream__") and not hasattr(kind, "tolist")
    if unknown or not hasattr(kind, "__iter__") and not (hasattr(kind, "__getitem__") and hasattr(kind, "__len__")):
        raise TypeError(f"{what}; give a list, an array, a table of pandas, Arrow or Polars, or any iterable")
    return items


def _once(names: Iterable[Any], what: str) -> None:
    """Refuse two columns of one name: a dict has each once."""
    twice = [str(name) for name, count in Counter(names).items() if count > 1]
    if twice:
        raise TypeError(f"{what} with two columns of one name, {', '.join(twice)}; rename one, or leave it out")


def _slices(items: Any, values: Callable[[Any], list]) -> Iterator[Any]:
    """The elements of items, made a part at a time."""
    for start in range(0, len(items), 1024):
        yield from values(items.slice(start, 1024))

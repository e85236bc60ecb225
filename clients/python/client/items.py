"""Turns inputs into items."""

from __future__ import annotations

import os
from typing import Any, Iterable, Iterator, Optional

from ..encode import encode, type_name


def check(items: Any) -> None:
    """Refuse what is no collection of items."""
    if isinstance(items, (str, bytes)):
        raise TypeError("items is a text, whose items would be its letters; give a list, or source= for a file or a URL")
    if not hasattr(type(items), "__iter__") and not hasattr(type(items), "__getitem__"):
        raise TypeError(f"items is a {type_name(type(items))}; give a list, an array, a table or any iterable")


def given(items: Any, source: Any) -> tuple[list[str], Optional[Iterator[bytes]], Optional[int]]:
    """The flags that say where the items are, what goes to standard input, and how many they are where that is known."""
    if (items is None) == (source is None):
        raise TypeError("give either items, or source= with a file or a URL")
    if source is not None:
        return ["--in", os.fspath(source)], None, None
    check(items)
    if isinstance(items, range) and items.step == 1 and len(items) > 0:
        return ["--range", f"{items.start}:{items.stop}"], None, len(items)
    total = len(items) if hasattr(type(items), "__len__") else None
    return ["--in", "-"], lines(items), total


def lines(items: Iterable[Any]) -> Iterator[bytes]:
    """A line of JSON per item. Errors name the item's position."""
    for index, item in enumerate(_each(items)):
        yield encode(item, f"items[{index}]") + b"\n"


def _each(items: Any) -> Iterable[Any]:
    """The rows of a table as dicts, those of an array as lists, else what iterating gives."""
    if hasattr(items, "to_batches") and hasattr(items, "column_names"):
        # pyarrow.Table
        return (row for batch in items.to_batches() for row in batch.to_pylist())
    if hasattr(items, "iterrows") and hasattr(items, "columns"):
        # pandas.DataFrame
        return _rows(list(items.columns), items)
    return items


def _rows(names: list, frame: Any) -> Iterator[dict]:
    for row in frame.itertuples(index=False, name=None):
        yield dict(zip(names, row))

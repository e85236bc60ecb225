"""The rows of tables of pandas, Arrow and Polars.

Owns what a row has: the columns, and of pandas also the index, as it writes both to Parquet. Never imports a library.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Callable, Iterable, Iterator, Optional


def rows(table: Any, what: str) -> Optional[Iterable[Any]]:
    """The rows of a table as dicts, or the values of a column; None for what is neither. Raises TypeError for a table, which what is
    about, that has two columns of one name."""
    kind = type(table)
    if hasattr(kind, "slice") and hasattr(kind, "to_pylist"):
        # Arrow's tables, batches, arrays and chunked arrays.
        _once(getattr(table, "column_names", ()), what)
        return _slices(table, kind.to_pylist)
    if hasattr(kind, "slice") and hasattr(kind, "to_list"):
        # polars.Series
        return _slices(table, kind.to_list)
    if hasattr(kind, "iter_rows"):
        # polars.DataFrame
        return table.iter_rows(named=True)
    if hasattr(kind, "itertuples"):
        return _of_pandas(table, what)
    return None


def _of_pandas(frame: Any, what: str) -> Iterator[dict]:
    index = frame.index
    levels = list(getattr(index, "names", [index.name]))
    if levels == [None] and type(index).__name__ == "RangeIndex":
        levels = []
    names = [f"__index_level_{n}__" if name is None else name for n, name in enumerate(levels)] + list(frame.columns)
    _once(names, what)
    each = frame.itertuples(index=bool(levels), name=None)
    if len(levels) > 1:
        each = ((*row[0], *row[1:]) for row in each)
    return (dict(zip(names, row)) for row in each)


def _once(names: Iterable[Any], what: str) -> None:
    """Refuse two columns of one name: a dict has each once."""
    twice = [str(name) for name, count in Counter(names).items() if count > 1]
    if twice:
        raise TypeError(f"{what} with two columns of one name, {', '.join(twice)}; rename one, or leave it out")


def _slices(column: Any, values: Callable[[Any], list]) -> Iterator[Any]:
    """The elements of a column or a table, made a part at a time."""
    for start in range(0, len(column), 1024):
        yield from values(column.slice(start, 1024))

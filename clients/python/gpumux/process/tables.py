"""The rows of tables of pandas, Arrow and Polars, and tables of rows.

Owns what a row has: the columns, and of pandas also the index, as it writes both to Parquet. Imports a library only for a task that
wants its tables.
"""

from __future__ import annotations

import importlib
from collections import Counter
from typing import Any, Callable, Iterable, Iterator, Optional


def maker(format: str) -> Callable[[list], Any]:
    """What makes of items what a task takes with format, of gpumux.batch. Raises ImportError where the library is missing."""
    library = importlib.import_module("pyarrow" if format == "arrow" else format)
    if format == "numpy":
        return lambda items: _each(items, lambda cells: _ndarray(library, cells)) if _objects(items) else _ndarray(library, items)
    table, column = (library.table, library.array) if format == "arrow" else (library.DataFrame, library.Series)
    return lambda items: table(_each(items, list)) if _objects(items) else column(items)


def _objects(items: list) -> bool:
    return all(type(item) is dict for item in items)


def _each(items: list, make: Callable[[list], Any]) -> dict[str, Any]:
    """The columns of objects: a field that one lacks is None."""
    names = dict.fromkeys(name for item in items for name in item)
    return {name: make([item.get(name) for item in items]) for name in names}


def _ndarray(numpy: Any, cells: list) -> Any:
    try:
        return numpy.asarray(cells)
    except ValueError:
        # Lists that differ in length.
        array = numpy.empty(len(cells), dtype=object)
        array[:] = cells
        return array


def of_columns(columns: dict, what: str) -> list[dict]:
    """The rows of columns of one length."""
    lengths = {str(name): len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"{what} with columns of different lengths: {lengths}")
    # Python's own numbers are quicker to write than NumPy's one by one.
    plain = (column.tolist() if getattr(column, "ndim", 0) == 1 else column for column in columns.values())
    return [dict(zip(columns, cells)) for cells in zip(*plain)]


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

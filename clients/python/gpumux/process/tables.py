"""The rows of tables of pandas, Arrow and Polars, and tables of rows.

Owns what a row has: the columns, and of pandas also the index, as it writes both to Parquet. Imports a library only for a task that
wants its tables.
"""

from __future__ import annotations

import functools
import importlib
from collections import Counter
from typing import Any, Callable, Iterable, Iterator, Optional

from .arrays import fetch


def library(format: str) -> Any:
    """The library of a format of gpumux.batch. Raises ImportError."""
    return importlib.import_module("pyarrow" if format == "arrow" else format)


def maker(format: str) -> Callable[[list], Any]:
    """What makes of items what a task takes with format."""
    module = library(format)
    if format == "numpy":
        return lambda items: _each(items, lambda cells: _ndarray(module, cells)) if _objects(items) else _ndarray(module, items)
    if format == "polars":
        # Its constructor drops fields that the first structs lack, and takes no number of another kind.
        table = functools.partial(module.from_dicts, infer_schema_length=None)
        return lambda items: table(items) if _objects(items) else table([{"": item} for item in items])[""]
    make, column = (module.table, module.array) if format == "arrow" else (module.DataFrame, module.Series)
    return lambda items: make(_each(items, list)) if _objects(items) else column(items)


def _objects(items: list) -> bool:
    return all(type(item) is dict for item in items)


def _each(items: list, make: Callable[[list], Any]) -> dict[str, Any]:
    """The columns of objects: a field that one lacks is None."""
    names = dict.fromkeys(name for item in items for name in item)
    return {name: make([item.get(name) for item in items]) for name in names}


def _ndarray(numpy: Any, cells: list) -> Any:
    """An array of numbers, or of lists and arrays of one shape; of anything else one of objects, since no cell may change its neighbours."""
    kinds = {bool if isinstance(_first(cell), (bool, numpy.bool_)) else type(_first(cell)) for cell in cells}
    if kinds == {bool} or all(issubclass(kind, (int, float, numpy.number)) and kind is not bool for kind in kinds):
        try:
            array = numpy.asarray(cells)
        except (ValueError, OverflowError):
            # Lists that differ in length, or have other things later on.
            array = None
        # Whole numbers of 64 bits with a sign and without have no type together.
        if array is not None and array.dtype.kind in "biufc" and not (kinds == {int} and array.dtype.kind == "f"):
            return array
    array = numpy.empty(len(cells), dtype=object)
    for i, cell in enumerate(cells):
        array[i] = cell
    return array


def _first(cell: Any) -> Any:
    """The first number of nested lists, or the cell."""
    while type(cell) is list and cell:
        cell = cell[0]
    return cell.flat[0] if getattr(cell, "ndim", 0) and cell.size else cell


def in_order(table: Any) -> Any:
    """The rows in the order of those that a task was given, where the index of pandas numbers these. Raises ValueError for columns of
    which some are in another order and others do not say."""
    if type(table) is not dict:
        return _reordered(table, _order(table))
    orders = {name: _order(column) for name, column in table.items()}
    moved = next((name for name, order in orders.items() if order is not None and order != [*range(len(order))]), None)
    if moved is None:
        return table
    for name, column in table.items():
        if not hasattr(column, "iloc"):
            raise ValueError(
                f"a batch function returned a dict whose column {moved!r} has its rows in another order, and {name!r} does not say in which; "
                "return a DataFrame of them"
            )
    return {name: _reordered(column, orders[name]) for name, column in table.items()}


def _order(table: Any) -> Optional[list[int]]:
    """Where the rows stand that an index of pandas numbers from 0, if it numbers all and is not the one that a new table has."""
    if not hasattr(table, "iloc"):
        return None
    index = table.index
    if index.name is not None or index.dtype.kind not in "iu" or index.hasnans or (getattr(index, "start", 1), getattr(index, "step", 0)) == (0, 1):
        return None
    labels = index.tolist()
    order = sorted(range(len(labels)), key=labels.__getitem__)
    return order if [labels[i] for i in order] == [*range(len(labels))] else None


def _reordered(table: Any, order: Optional[list[int]]) -> Any:
    return table if order is None else table.iloc[order].reset_index(drop=True)


def of_columns(columns: dict, what: str) -> list[dict]:
    """The rows of columns of one length."""
    for name, column in columns.items():
        if isinstance(column, (str, bytes)) or not hasattr(column, "__len__") or getattr(column, "ndim", 1) == 0:
            raise TypeError(f"{what} whose column {name!r} is a {type(column).__name__}; give one value for each item")
    lengths = {str(name): len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"{what} with columns of different lengths: {lengths}")
    return [dict(zip(columns, cells)) for cells in zip(*map(_plain, columns.values()))]


def _plain(column: Any) -> Any:
    """Python's own numbers are quicker to write than NumPy's one by one, where they are written alike."""
    array = fetch(column)
    if array is None:
        return column
    return array.tolist() if array.ndim == 1 and (array.dtype.kind in "biu" or array.dtype.str[1:] == "f8") else array


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

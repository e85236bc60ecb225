"""Turns results into tables of pandas and Arrow.

Owns their columns, which are those of the files that the command writes, and that each value is in them as it is.
"""

from __future__ import annotations

import json
from numbers import Integral, Real
from typing import Any, Sequence

from ..process.encode import encode
from .fault import Result

# Beyond it not every whole number is a float.
_WIDE = 1 << 53


def columns(results: Sequence[Result]) -> dict[str, list]:
    """The values of results by column."""
    before = {name: [getattr(each, name) for each in results] for name in ("index", "key", "item")}
    for name in "key", "item":
        if all(each is None for each in before[name]):
            del before[name]
    faults = [each.fault for each in results]
    after = {"fault": [fault and fault.kind for fault in faults], "fault_message": [fault and fault.message for fault in faults]}
    values = [each.value for each in results]
    rows = [value for value in values if isinstance(value, dict)]
    if not any(rows) or len(rows) < faults.count(None):
        return {**before, "value": values, **after}
    fields = dict.fromkeys(field for row in rows for field in row)
    named = {f"value.{field}" if field in before or field in after else str(field): field for field in fields}
    return {**before, **{name: [value.get(field) if value else None for value in values] for name, field in named.items()}, **after}


def to_pandas(results: Sequence[Result]) -> Any:
    """A pandas.DataFrame with a row per result, named by its index."""
    import pandas

    found = columns(results)
    index = pandas.Index(found.pop("index"), name="index")
    return pandas.DataFrame({name: _series(values, pandas) for name, values in found.items()}, index=index)


def to_arrow(results: Sequence[Result]) -> Any:
    """A pyarrow.Table with a row per result."""
    import pyarrow

    return pyarrow.table({name: _array(values, name, pyarrow) for name, values in columns(results).items()})


def _numbers(values: list) -> set:
    """What the values are, as far as it decides the type of a column of numbers."""
    return {
        None if value is None
        else "other" if isinstance(value, bool) or not isinstance(value, Real)
        else "wide" if isinstance(value, Integral) and not -_WIDE <= value <= _WIDE
        else "whole" if isinstance(value, Integral)
        else "nan" if value != value
        else "float"
        for value in values
    }


def _series(values: list, pandas: Any) -> Any:
    found = _numbers(values)
    wide = "wide" in found and bool(found & {"float", "nan"})
    if found <= {None, "wide", "whole", "nan"} and (wide or found & {"wide", "whole"} and None in found and "nan" not in found):
        for kind in "Int64", "UInt64":
            try:
                return pandas.array([None if value != value else value for value in values], dtype=kind)
            except OverflowError:
                continue
        wide = True
    return pandas.array(values, dtype=object) if wide else values


def _array(values: list, name: str, pyarrow: Any) -> Any:
    ways: list[dict] = [{}]
    if _numbers(values) <= {None, "wide", "whole", "nan"}:
        ways += {"from_pandas": True}, {"type": pyarrow.uint64(), "from_pandas": True}
    for way in ways:
        try:
            array = pyarrow.array(values, **way)
        except (pyarrow.ArrowException, OverflowError):
            continue
        if not _hollow(array.type, pyarrow):
            return array
    # Of no type: JSON, in which NaN is a text.
    texts = [None if value is None else json.loads(encode(value, name)) for value in values]
    return pyarrow.array([None if text is None else json.dumps(text, ensure_ascii=False, separators=(",", ":")) for text in texts], pyarrow.string())


def _hollow(kind: Any, pyarrow: Any) -> bool:
    """Whether a type has structs without fields, which a file of Parquet cannot have."""
    inside = [kind.field(i).type for i in range(kind.num_fields)]
    return pyarrow.types.is_struct(kind) and not inside or any(_hollow(each, pyarrow) for each in inside)

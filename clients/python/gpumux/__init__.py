"""What a task may use of gpumux: arg, batch, concurrent, resident, slot, progress and save. A task needs none of them.

Owns the Python side of a slot. Never prints by itself and needs only the standard library. Outside of a slot everything still works:
slot() knows nothing, progress() and save() do nothing. There the client is part of the package too: map and the like.
"""

from __future__ import annotations

import threading as _threading
from typing import TYPE_CHECKING, Any, Callable, Hashable, NamedTuple, Optional, TypeVar

if TYPE_CHECKING:
    from .client import BadInput, Cluster, Error, Executor, Fault, MapFailed, Result, Rows, Unavailable, connect, map
    from .client import register_joblib, slurm, stage, starmap, stream

__all__ = ["Slot", "arg", "batch", "concurrent", "progress", "resident", "save", "slot"]
_CLIENT = (
    "BadInput", "Cluster", "Error", "Executor", "Fault", "MapFailed", "Result", "Rows", "Unavailable", "connect", "map", "register_joblib",
    "slurm", "stage", "starmap", "stream",
)

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])


class Slot(NamedTuple):
    """The slot that this process runs in. Every field is None outside of a slot."""

    name: Optional[str] = None
    """The pool and the number of the slot in it: "gpu/0"."""
    device: Optional[str] = None
    """The device's UUID, such as "GPU-5c89…" or "MIG-…", or "CPU"."""
    memory: Optional[int] = None
    """The budget in bytes, or None when there is none."""
    mode: Optional[str] = None
    """"persistent" or "fresh"."""
    task: Optional[str] = None
    """The name of the task."""


_slot = Slot()
_report: Optional[Callable[[bytes], None]] = None
_save: Optional[Callable[[str, Any], None]] = None
_arg: list = []
_residents: dict[Hashable, Any] = {}
_locks: dict[Hashable, Any] = {}
_guard = _threading.Lock()


def __getattr__(name: str) -> Any:
    """The client's names. A slot has no client: the worker's own runtime is without it."""
    if name not in _CLIENT:
        raise AttributeError(f"module 'gpumux' has no attribute {name!r}")
    try:
        from . import client
    except ImportError:
        if name == "register_joblib":
            # Scripts and libraries call it where slots import them.
            return lambda: None
        raise AttributeError(
            f"gpumux.{name} is not for tasks: where the file of a task maps by itself, put that under `if __name__ == \"__main__\":`"
        ) from None
    return getattr(client, name)


def __dir__() -> list[str]:
    return [*__all__, *_CLIENT]


def slot() -> Slot:
    """The slot that this process runs in."""
    return _slot


def arg() -> Any:
    """What all items of the map share, the value of its --arg, or None. It is read once per process, and every call gives the same value.

    Arrays that Python gave are NumPy's, read-only, and in memory once for all slots of a host.
    """
    if not _arg:
        import json
        import os

        from .process import argument, item

        text, file = os.environ.get("GPUMUX_ARG"), os.environ.get("GPUMUX_ARG_FILE")
        _arg.append(argument.read(file) if file else json.loads(item.numbers(text)) if text else None)
    return _arg[0]


def progress(value: Any) -> None:
    """Report how far the running item is; value is anything that a task may return, such as 0.5 or {"epoch": 3}.

    Any thread may call it. Does nothing outside of a slot and between items. Raises TypeError when JSON cannot hold value. In a task with
    gpumux.concurrent, what is called beside the items, such as by a task that __aenter__ began, is of the process, and restarts no clock.
    """
    if _report is not None:
        from .process.encode import encode

        _report(encode(value, "progress"))


def save(name: str, data: Any) -> None:
    """Keep a file beside the result of the running item: `gpumux map --files DIR` and `gpumux results ID --files DIR` fetch it.

    name is a plain one such as "plot.png". data is the content as bytes or str, or where to copy it from: a path such as a
    pathlib.Path, or an open file. Any thread may call it. A name that the item saved already is replaced. The files of a try that
    fails are dropped. Raises ValueError for a name or a file that cannot be kept, RuntimeError where there is no place for files.
    Does nothing outside of a slot.
    """
    from .process.files import check

    check(name)
    if _save is not None:
        _save(name, data)


def resident(key: Hashable, build: Callable[[], _T]) -> _T:
    """The value of build(), kept in this process under key: a loaded model, an open connection.

    build runs once per process, and again only if it raised. Threads with the same key wait for the first.
    """
    try:
        return _residents[key]
    except KeyError:
        pass
    with _guard:
        lock = _locks.setdefault(key, _threading.RLock())
    with lock:
        if key not in _residents:
            value = build()
            if hasattr(value, "__await__"):
                if hasattr(value, "close"):
                    value.close()
                raise TypeError(f"resident({key!r}): build returned an awaitable; give a plain function")
            _residents[key] = value
        return _residents[key]


def batch(
    function: Optional[_F] = None, *, max: int = 64, cost: Callable[[Any], float] = len, limit: Optional[float] = None, format: Optional[str] = None
) -> Any:
    """Mark a task that takes a list of items and returns a list of as many values, in the same order.

    max is the most items per call. With limit a call's items also cost no more than that in all, by cost, which is called once
    per item; an item that costs more by itself gets a call of its own. When the device runs out of memory the list is halved and
    tried again in the same process; when the call raises for another reason its items are tried one by one, so that only the
    guilty one fails. The function stays an ordinary function for callers of your own.

    format is what the function takes in place of a list. Items that are objects make a table: "pandas" or "polars" a DataFrame, "arrow"
    a Table, "numpy" a dict of arrays. Other items make a Series or an array. It returns as many rows, in any of these forms or as a list.

        @gpumux.batch(max=64)
        def embed(texts: list[str]) -> list[list[float]]: ...

        @gpumux.batch(max=512, cost=lambda text: len(tokenize(text)), limit=16384)
        def embed(texts: list[str]) -> list[list[float]]: ...

        @gpumux.batch(max=1024, format="pandas")
        def clean(rows: pandas.DataFrame) -> pandas.DataFrame: ...
    """
    _check_max("batch", max)
    if format not in (None, "pandas", "polars", "arrow", "numpy"):
        raise ValueError(f"gpumux.batch(format={format!r}): give \"pandas\", \"polars\", \"arrow\" or \"numpy\"")
    if not callable(cost):
        raise TypeError(f"gpumux.batch(cost={cost!r}): give a function that returns what an item costs, such as len")
    if limit is None:
        if cost is not len:
            raise ValueError("gpumux.batch(cost=…): a cost needs a limit=…, which is what the items of one call may cost in all")
    elif isinstance(limit, bool) or not isinstance(limit, (int, float)) or not limit > 0:
        raise ValueError(f"gpumux.batch(limit={limit!r}): give a number over 0")

    if format is not None and _slot.name is not None:
        from .process import tables

        # Here, where a template imports the task, and not in each process that is forked from it.
        tables.library(format)

    def mark(task: _F) -> _F:
        if hasattr(task, "__gpumux_concurrent__"):
            raise TypeError(f"gpumux.batch: {_name_of(task)} has gpumux.concurrent, and can have only one of them")
        task.__gpumux_batch__ = max  # type: ignore[attr-defined]
        task.__gpumux_format__ = format  # type: ignore[attr-defined]
        if limit is not None:
            task.__gpumux_limit__ = (cost, limit)  # type: ignore[attr-defined]
        return task

    return _marked("batch", mark, function)


def concurrent(function: Optional[_F] = None, *, max: int = 64) -> Any:
    """Mark an async task of which up to max items run at the same time, on the event loop of one process.

    A new item starts whenever one ends. Each has its own attempts, exception, timeout, progress and files; results keep the order
    of the items. It is for engines that batch by themselves, and for calls of services.

        @gpumux.concurrent(max=64)
        async def complete(prompt: str) -> str: ...
    """
    _check_max("concurrent", max)

    def mark(task: _F) -> _F:
        import inspect

        if not inspect.iscoroutinefunction(task):
            instead = "mark its __call__" if isinstance(task, type) else "write `async def`, or use gpumux.batch for lists of items"
            raise TypeError(f"gpumux.concurrent: {_name_of(task)} is no async function; {instead}")
        if hasattr(task, "__gpumux_batch__"):
            raise TypeError(f"gpumux.concurrent: {_name_of(task)} has gpumux.batch, and can have only one of them")
        task.__gpumux_concurrent__ = max  # type: ignore[attr-defined]
        return task

    return _marked("concurrent", mark, function)


def _check_max(name: str, max: Any) -> None:
    if isinstance(max, bool) or not isinstance(max, int) or max < 1:
        raise ValueError(f"gpumux.{name}(max={max!r}): give a whole number of at least 1")


def _marked(name: str, mark: Callable[[Any], Any], function: Any) -> Any:
    if function is None:
        return mark
    if not callable(function):
        raise TypeError(f"gpumux.{name}({function!r}): write gpumux.{name}(max=…)")
    return mark(function)


def _name_of(task: Any) -> str:
    return getattr(task, "__qualname__", None) or repr(task)

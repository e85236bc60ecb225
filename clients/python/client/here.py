"""Maps a function on this machine."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any, Callable, Iterable, Optional, Sequence, Union

from . import function as functions
from . import items as inputs
from .options import Memory, Words, encoded, flags, seconds, words
from .rows import Rows


def map(
    function: Union[Callable[..., Any], str],
    items: Optional[Iterable[Any]] = None,
    *,
    source: Union[str, "os.PathLike[str]", None] = None,
    columns: Optional[Words] = None,
    key: Optional[str] = None,
    with_item: bool = False,
    slots: Union[int, str, None] = None,
    memory: Optional[Memory] = None,
    devices: Optional[Words] = None,
    sharing: Optional[str] = None,
    pool: Optional[Words] = None,
    mode: Optional[str] = None,
    timeout: Optional[float] = None,
    start_timeout: Optional[float] = None,
    attempts: Optional[int] = None,
    backoff: Optional[float] = None,
    arg: Any = None,
    fail_fast: bool = False,
    max_failures: Union[int, str, None] = None,
    chunk: Optional[int] = None,
    cache: bool = False,
    files: Union[str, "os.PathLike[str]", None] = None,
    id: Optional[str] = None,
    retry: bool = False,
    ordered: bool = True,
    raise_faults: bool = False,
    progress: Optional[bool] = None,
    python: Optional[str] = None,
    visible_devices: Optional[str] = None,
    gpus_per_slot: Optional[int] = None,
    pass_env: Sequence[str] = (),
    data: Union[str, "os.PathLike[str]", None] = None,
) -> Rows:
    """Run function on every item, in slots on this machine, and give a Result for each, in order, as they come.

    What has finished is kept until all of it was given: the same call continues after an interruption, a crash or kill -9. The same
    call is one with the same function, items and options, or with the same id.

    function is a function, or its name as "file.py:function", or a class that is made once per process and then called with each item.
    Those of notebooks, lambdas and inner functions need cloudpickle.
    items is any iterable of what JSON can hold: rows of arrays arrive as lists, those of tables (pandas, Arrow, Polars) as dicts. source is
    a file or URL of items instead: JSON lines, CSV, TSV, Parquet or Arrow; columns are those of a table that items have.
    key names the field of the items, dicts, that each Result has as its key; with_item gives it the whole item.
    slots is how many run side by side on a device, or "auto"; memory is the budget of each, such as "4GiB" or bytes.
    timeout is the most seconds of one item, attempts how often one that raises is tried, backoff the seconds before it is tried again.
    start_timeout is the most seconds that a process may take to start, with what the function's module loads or downloads (300).
    max_failures, such as 10 or "5%", is with how many failed items the map goes on. arg is what all items share, such as a
    configuration: gpumux.arg() in the function. retry runs the failed items of a map again.
    cache takes results of equal items from earlier maps of the function with cache and the same data, which keeps them.
    files is the folder for what items keep with gpumux.save, each as <index>/<name>; the default is ./<id of the map>.files.
    raise_faults raises the Fault of the first failed item, and stops the map. progress shows a bar, if tqdm is installed; the
    default is in terminals and notebooks. The other options are those of `gpumux map --local`.

    Raises BadInput, Unavailable or MapFailed, with what the command said.
    """
    over, feed, total = inputs.given(items, source)
    named = functions.name(function, functions.state())
    environ = None
    pass_env = words(pass_env)
    if named.path is not None:
        environ = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, [named.path, os.environ.get("PYTHONPATH")])))
        pass_env.append("PYTHONPATH")
    arguments = [
        "map", named.task, "--local", "--out", "-",
        *flags(
            columns=columns, key=key, with_item=with_item, slots=slots, memory=memory, devices=devices, sharing=sharing, pool=pool,
            mode=mode, timeout=seconds(timeout), start_timeout=seconds(start_timeout), attempts=attempts, backoff=seconds(backoff),
            arg=encoded(arg), fail_fast=fail_fast, max_failures=max_failures, chunk=chunk, cache=cache, files=files, id=id, retry=retry,
            unordered=not ordered, python=python or sys.executable, visible_devices=visible_devices, gpus_per_slot=gpus_per_slot,
            pass_env=pass_env, data=data,
        ),
    ]

    def done() -> None:
        if named.made is not None:
            shutil.rmtree(os.path.dirname(named.made), ignore_errors=True)

    return Rows([*arguments, *over], feed, environ=environ, total=total, show=progress, raise_faults=raise_faults, done=done)

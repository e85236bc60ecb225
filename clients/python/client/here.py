"""Maps a function on this machine."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any, Callable, Iterable, Optional, Sequence, Union

from . import function as functions
from . import items as inputs
from .options import Memory, Words, flags, seconds, words
from .rows import Rows


def map(
    function: Union[Callable[..., Any], str],
    items: Optional[Iterable[Any]] = None,
    *,
    source: Union[str, "os.PathLike[str]", None] = None,
    columns: Optional[Words] = None,
    slots: Union[int, str, None] = None,
    memory: Optional[Memory] = None,
    devices: Optional[Words] = None,
    sharing: Optional[str] = None,
    pool: Optional[Words] = None,
    mode: Optional[str] = None,
    timeout: Optional[float] = None,
    attempts: Optional[int] = None,
    fail_fast: bool = False,
    chunk: Optional[int] = None,
    id: Optional[str] = None,
    retry: bool = False,
    ordered: bool = True,
    raise_faults: bool = False,
    progress: Optional[bool] = None,
    python: Optional[str] = None,
    pass_env: Sequence[str] = (),
    data: Union[str, "os.PathLike[str]", None] = None,
) -> Rows:
    """Run function on every item, in slots on this machine, and give a Result for each, in order, as they come.

    What has finished is kept until all of it was given: the same call continues after an interruption, a crash or kill -9. The same
    call is one with the same function, items and options, or with the same id.

    function is a function, or its name as "file.py:function". Those of notebooks, lambdas and inner functions need cloudpickle.
    items is any iterable of what JSON can hold: rows of arrays arrive as lists, those of pandas and Arrow tables as dicts. source is
    a file or URL of items instead: JSON lines, CSV, TSV, Parquet or Arrow; columns are those of a table that items have.
    slots is how many run side by side on a device, or "auto"; memory is the budget of each, such as "4GiB" or bytes.
    timeout is the most seconds of one item, attempts how often one that raises is tried. retry runs the failed items of a map again.
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
            columns=columns, slots=slots, memory=memory, devices=devices, sharing=sharing, pool=pool, mode=mode, timeout=seconds(timeout), attempts=attempts,
            fail_fast=fail_fast, chunk=chunk, id=id, retry=retry, unordered=not ordered, python=python or sys.executable,
            pass_env=pass_env, data=data,
        ),
    ]

    def done() -> None:
        if named.made is not None:
            shutil.rmtree(os.path.dirname(named.made), ignore_errors=True)

    return Rows([*arguments, *over], feed, environ=environ, total=total, show=progress, raise_faults=raise_faults, done=done)

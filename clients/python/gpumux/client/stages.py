"""Describes the stages of a map: functions that items go through one after the other.

Owns what a stage may say for itself. Never checks what the command does.
"""

from __future__ import annotations

import io
from typing import Any, Callable, NamedTuple, Optional, Sequence, Union

from ..process import argument
from ..process.encode import encode
from . import function as functions
from .options import Exceptions, Words, exceptions, words


class Stage:
    """A function with options of its own, as gpumux.stage makes it."""

    def __init__(self, function: Any, options: dict) -> None:
        self.function, self.options = function, options


MAX_ARG = 16 << 10

Task = Union[Callable[..., Any], str, Stage]


def stage(
    function: Union[Callable[..., Any], str],
    *,
    pool: Optional[Words] = None,
    arg: Any = None,
    mode: Optional[str] = None,
    timeout: Optional[float] = None,
    attempts: Optional[int] = None,
    retry_on: Optional[Exceptions] = None,
    backoff: Optional[float] = None,
    chunk: Optional[int] = None,
    keep: bool = False,
) -> Stage:
    """A function of gpumux.map([...]) with options of its own; what it leaves out is that of the map.

    pool is a name such as "cpu", or several: where the first has no device, the next takes the work.
    arg has at most 16 KiB as JSON. keep leaves the values of the stage on disk when the map has ended,
    so that the same map with other code in later stages need not run it again.
    """
    if isinstance(function, Stage):
        raise TypeError("gpumux.stage: give a function, not a stage")
    ladder = None if pool is None else words(pool)
    if arg is not None:
        argument.write(arg, file := io.BytesIO())
        if file.getvalue().startswith(argument.HEAD):
            raise TypeError("gpumux.stage: its arg has an array; give arrays in the arg of the map")
        if file.tell() > MAX_ARG:
            raise ValueError(f"gpumux.stage: its arg has {file.tell()} bytes as JSON, more than {MAX_ARG}; give it as the arg of the map")
    options = dict(
        ladder=ladder, arg=arg, mode=mode, timeout=timeout, attempts=attempts, retryOn=retry_on and exceptions(retry_on), backoff=backoff, chunk=chunk,
        keep=keep or None,
    )
    return Stage(function, {name: value for name, value in options.items() if value is not None})


class Tasks(NamedTuple):
    """What a map runs: one function, or the stages."""

    words: list[str]
    """What says so to the command."""
    functions: list[Any]
    named: list[functions.Named]


def tasks(given: Union[Task, Sequence[Task]], state: str) -> Tasks:
    """The tasks of a function or of stages. Those that no import finds are written to files below state."""
    if not isinstance(given, (list, tuple, Stage)):
        named = functions.name(given, state)
        return Tasks([named.task], [given], [named])
    stages = [each if isinstance(each, Stage) else Stage(each, {}) for each in ([given] if isinstance(given, Stage) else given)]
    if not stages:
        raise TypeError("gpumux.map: the list of functions is empty; give one at least")
    all_named = [functions.name(each.function, state) for each in stages]
    found = [word for each, named in zip(stages, all_named) for word in ("--stage", encode({"task": named.task, **each.options}, "stage").decode())]
    return Tasks(found, [each.function for each in stages], all_named)

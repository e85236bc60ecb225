"""Calls of the client's Executor: any function, with arguments and results of any type that pickle takes.

Owns how such a call looks as an item and as a result, on both sides, and keeps what the function raises for the client.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import pickle
import sys
from typing import Any, Callable, Sequence

from .typed import dumps, loads

TARGET = "gpumux.process.remote:Calls"
# Names the file with the call that each process begins with, as an item.
INITIALIZER = "_GPUMUX_INITIALIZER"
BEGUN, CANCELLED = "begun", "cancelled"


def pack(function: str, arguments: bytes, raised: str) -> dict:
    """The item of a call: the function as a task names it or the file that has it, the pickled pair of its positional and named
    arguments, and the file for an exception."""
    return {"function": function, "arguments": base64.b64encode(arguments).decode(), "raised": raised}


def mark(raised: str) -> str:
    """The link that says of a call that it has begun, or is cancelled."""
    return raised + ".mark"


def marked(path: str) -> str:
    """What the link says, or nothing where there is none."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def by_value(paths: Sequence[str], function: bytes) -> bytes:
    """The file of a pickled function, whose modules are found in paths as well. Its name ends in .pickle."""
    return pickle.dumps(paths) + function


def unpack(result: str) -> bytes:
    """What a call returned, pickled."""
    return base64.b64decode(result)


class Calls:
    """Runs calls. A slot makes one per process."""

    def __init__(self) -> None:
        path = os.environ.get(INITIALIZER)
        if path is None:
            return
        with open(path, encoding="utf-8") as file:
            item = json.load(file)
        try:
            _run(item)
        except BaseException as error:
            raise RuntimeError(f"the executor's initializer raised {type(error).__name__}: {error}") from error

    def __call__(self, item: dict) -> str:
        """Run a call, unless it was cancelled."""
        link = mark(item["raised"])
        try:
            os.symlink(BEGUN, link)
        except OSError:
            if marked(link) == CANCELLED:
                return ""
        try:
            return base64.b64encode(dumps(_run(item), "result")).decode()
        except Exception as error:
            _keep(error, item["raised"])
            raise


def _run(item: dict) -> Any:
    positional, named = loads(base64.b64decode(item["arguments"]))
    return _function(item["function"])(*positional, **named)


@functools.lru_cache(maxsize=4)
def _function(name: str) -> Callable[..., Any]:
    if not name.endswith(".pickle"):
        from . import task

        return task.load(name, "")
    with open(name, "rb") as file:
        sys.path += [path for path in pickle.load(file) if path not in sys.path]
        return pickle.load(file)


def _keep(error: Exception, path: str) -> None:
    try:
        kept = dumps(error, "exception")
    except Exception as second:
        kept = pickle.dumps(str(second))
    try:
        with open(path, "wb") as file:
            file.write(kept)
    except OSError:
        pass  # the fault says what was raised

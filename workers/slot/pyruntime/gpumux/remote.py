"""Calls of the client's Executor: any function, with arguments and results of any type that pickle takes.

Owns how such a call looks as an item and as a result, on both sides. Never catches what the function raises.
"""

from __future__ import annotations

import base64
import pickle
from typing import Any, Callable

TARGET = "gpumux.remote:call"
_functions: dict[str, Callable[..., Any]] = {}


def pack(function: str, arguments: bytes) -> dict:
    """The item of a call: the function as a task names it, and the pickled pair of its positional and named arguments."""
    return {"function": function, "arguments": base64.b64encode(arguments).decode()}


def unpack(result: str) -> Any:
    """What a call returned."""
    return pickle.loads(base64.b64decode(result))


def call(item: dict) -> str:
    """Run a call in a slot."""
    name = item["function"]
    function = _functions.get(name)
    if function is None:
        from . import task

        function = _functions[name] = task.load(name, "")
    positional, named = pickle.loads(base64.b64decode(item["arguments"]))
    return base64.b64encode(_dumps(function(*positional, **named))).decode()


def _dumps(value: Any) -> bytes:
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise TypeError(f"the result, a {type(value).__qualname__}, cannot be pickled: {error}") from error

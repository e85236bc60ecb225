"""Turns what Python callers say into the flags of the command, which checks them."""

from __future__ import annotations

import os
from typing import Any, Optional, Sequence, Union

from ..encode import encode

Memory = Union[int, str]
Words = Union[str, Sequence[str]]


def flags(**values: Any) -> list[str]:
    """A flag for each value that was given: True is the flag alone, several words become one with commas."""
    found: list[str] = []
    for name, value in values.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            found.append(flag)
        elif isinstance(value, (list, tuple)):
            found += [flag, ",".join(str(each) for each in value)] if value else []
        else:
            found += [flag, os.fspath(value) if hasattr(value, "__fspath__") else str(value)]
    return found


def words(given: Words) -> list[str]:
    """One word or several, as a list."""
    return [given] if isinstance(given, str) else list(given)


def encoded(value: Any) -> Optional[str]:
    """The value of arg= as JSON. Raises TypeError when JSON cannot hold it."""
    return None if value is None else encode(value, "arg").decode()


def seconds(time: Optional[float]) -> Optional[str]:
    """A time of so many seconds as the command reads it."""
    if time is None or isinstance(time, str):
        return time
    return f"{time:f}s"

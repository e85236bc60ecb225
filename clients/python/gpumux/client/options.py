"""Turns what Python callers say into the flags of the command, which checks them."""

from __future__ import annotations

import os
from typing import Any, Mapping, Sequence, Union

from ..process.encode import type_name

Memory = Union[int, str]
Words = Union[str, Sequence[str]]
Paths = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]
Exceptions = Union[type, str, Sequence[Union[type, str]]]


# Fields of a map's input that the command takes with --option.
FIELDS = {"chunk": "chunk", "edition": "edition", "priority": "priority", "fairness_key": "fairnessKey", "fairness_weight": "fairnessWeight"}


def flags(options: dict) -> list[str]:
    """A flag for each option that was given: several words become one with commas, in quotation marks where they have some."""
    found: list[str] = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if name == "ordered":
            found += [] if value else ["--unordered"]
        elif name in FIELDS:
            found += [] if value is None else ["--option", f"{FIELDS[name]}={value}"]
        elif name == "skip":
            for each in () if value is None else words(value):
                found += ["--skip", os.fspath(each)]
        elif value is True:
            found.append(flag + "=true")  # a flag that wants more would take what comes after it
        elif value is not None and value is not False and value != []:
            found += [flag, text_of(name, value)]
    return found


def text_of(name: str, value: Any) -> str:
    """An option's value as the command reads it."""
    if name == "retry_on":
        return ",".join(exceptions(value))
    if name in ("timeout", "start_timeout", "backoff") and not isinstance(value, str):
        return f"{value:.9f}".rstrip("0").rstrip(".") + "s"
    if isinstance(value, Mapping):
        return ",".join(f"{each}={number}" for each, number in value.items())
    if isinstance(value, (list, tuple)):
        return ",".join(map(_quoted, map(str, value)))
    if name in ("columns", "text"):
        return _quoted(str(value))
    return os.fspath(value) if hasattr(value, "__fspath__") else str(value)


def _quoted(word: str) -> str:
    return '"' + word.replace('"', '""') + '"' if not word or set(word) & {",", '"', "\n", "\r"} else word


def exceptions(given: Exceptions) -> list[str]:
    """The names of classes of exceptions."""
    several = [given] if isinstance(given, (type, str)) else list(given)
    for each in several:
        if not isinstance(each, (type, str)):
            raise TypeError(f"retry_on: {each!r} is no class of exceptions and no name of one")
    return [type_name(each) if isinstance(each, type) else each for each in several]


def words(given: Paths) -> list[Any]:
    """One word or path, or several, as a list."""
    return [given] if isinstance(given, (str, os.PathLike)) else list(given)

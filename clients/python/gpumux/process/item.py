"""Reads an item's JSON.

Owns what Python makes of it. Never changes a value silently: whole numbers stay exact, and one beyond a float is an error.
"""

from __future__ import annotations

import json
import marshal
import math
import struct
from typing import Any, Callable

# The most bytes that are read at once: one letter beyond Latin in them makes all of their text wide.
_SMALL = 1 << 20
_decode = json.JSONDecoder().decode
_scan = json.JSONDecoder().scan_once


def read(raw: memoryview) -> Any:
    """The item whose JSON lies in raw. Raises ValueError or OverflowError that says what is wrong with it."""
    text = ""
    try:
        text = str(raw, "utf-8")
        # The search for one character costs nothing.
        if "\\" in text:
            text = numbers(text)
        elif text[:1] == '"' and text.find('"', 1) == len(text) - 1:
            # The worker has seen that it is JSON.
            return text[1:-1]
        item, end = _scan(text, 0)
        if end != len(text):
            raise StopIteration
    except StopIteration:
        try:
            # White space around it, or no JSON at all.
            item = _decode(text)
        except ValueError as error:
            raise _not_json(raw, error) from None
    except ValueError as error:
        raise _not_json(raw, error) from None
    if type(item) in _BOUNDED:
        return item
    if _endless(item):
        _exact(text)
    return item


def read_all(raws: list) -> list:
    """The items of a micro-batch. What read spends on each of them is most of its time for small ones."""
    if sum(map(len, raws)) > _SMALL:
        return [read(raw) for raw in raws]
    try:
        text = numbers(str(b"[" + b",".join(raws) + b"]", "utf-8"))
        found, end = _scan(text, 0)
        if end == len(text) and len(found) == len(raws) and not _endless(found):
            return found
    except (StopIteration, ValueError, RecursionError):
        pass
    return [read(raw) for raw in raws]


def rebuilt(raw: bytes, build: Callable[[dict], Any]) -> Any:
    """read, with what build makes of each object in its place."""
    try:
        return json.JSONDecoder(parse_float=_float, object_hook=build).decode(numbers(str(raw, "utf-8")))
    except ValueError as error:
        raise _not_json(memoryview(raw), error) from None


def numbers(text: str) -> str:
    """JSON with NaN and the infinities as Python's json has them, where encode.py has written them."""
    if '"\\u00' in text:
        for written, name in _WRITTEN:
            text = text.replace(written, name)
    return text


_WRITTEN = (('"\\u004eaN"', "NaN"), ('"\\u0049nfinity"', "Infinity"), ('"\\u002dInfinity"', "-Infinity"))
# Types without a float.
_BOUNDED = frozenset((int, str, bool, type(None)))
_INFINITY, _MINUS_INFINITY = struct.pack("<d", math.inf), struct.pack("<d", -math.inf)


def _endless(item: Any) -> bool:
    """Whether item may hold an infinity. Far cheaper than a check of every float."""
    try:
        data = marshal.dumps(item, 2)
    except ValueError:
        # It is nested too deeply for marshal.
        return True
    return _INFINITY in data or _MINUS_INFINITY in data


def _float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        shown = digits if len(digits) <= 40 else digits[:40] + "…"
        raise OverflowError(f"the item holds {shown}, and a float of Python ends at 1.8e308; make it a string")
    return number


_exact = json.JSONDecoder(parse_float=_float).decode


def _not_json(raw: memoryview, error: ValueError) -> ValueError:
    what = "is not JSON" if isinstance(error, (json.JSONDecodeError, UnicodeDecodeError)) else "holds what Python does not read"
    return ValueError(f"the item {what}: {error}: {bytes(raw[:80])!r}")

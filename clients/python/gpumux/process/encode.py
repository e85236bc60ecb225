"""Turns what a task returned into JSON.

Owns the rules of docs/wire.md on values. Never changes a value. The fast way is the interpreter's encoder with a hook for other types.
The slow way walks the value, for what the encoder refuses: NaN, keys that are no strings, and errors, which it reports with their path.
"""

from __future__ import annotations

import base64
import json
import math
import os
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any, Callable

from .arrays import known, shortest

MAX_VALUE = (1 << 30) - (1 << 12)
# Stands for the beginning of an escape in what _walk makes. No task has it in a string of its own.
_ESCAPE = "gpumux-escape-" + os.urandom(16).hex()
_ACCEPTED = (
    "return dict, list, str, int, float, bool, None, NumPy, torch or JAX arrays, dataclasses, bytes, dates or paths; "
    "with pickle=True gpumux.map takes anything"
)


def encode(value: Any, name: str = "result", arrays: Any = None) -> bytes:
    """value as compact UTF-8 JSON. Raises TypeError or ValueError that names the path, such as result.scores[3].

    arrays may take arrays out of the value: its take says what stands for one, its hook is taking(take), and its restart forgets them.
    """
    kind = type(value)
    if kind is int:
        # Most small results are numbers. Those of thousands of digits raise, here and below.
        try:
            return b"%d" % value
        except ValueError:
            pass
    text = None
    try:
        text = _fast(value, _hook if arrays is None else arrays.hook)
    except (TypeError, ValueError):
        pass
    if text is None or _mixed(value):
        if arrays is not None:
            arrays.restart()
        text = _fast(_walk(value, name, set(), _no_array if arrays is None else arrays.take), _hook).replace(_ESCAPE, "\\u00")
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise ValueError(_lone(value, name)) from None
    if len(data) > MAX_VALUE:
        raise ValueError(f"{name} has {len(data)} bytes, the wire carries at most {MAX_VALUE}; write a file and return its path")
    return data


def encode_all(values: list) -> list[bytes] | None:
    """The values of a micro-batch as encode has them, in much less time, or None where one is for encode, or holds an array."""
    if _fast is not _direct or _mixed(values):
        return None
    encoder = _make({}, _hook_without_arrays, _quoted, None, ":", ",", False, False, False)
    try:
        found = ["".join(encoder(value, 0)).encode() for value in values]
    except Exception:
        return None
    return found if max(map(len, found)) <= MAX_VALUE else None


def rows(values: Any) -> list:
    """The values of a micro-batch as a list; an array gives its rows, fetched from the device at once."""
    kind = type(values)
    # A tuple whose places have names is one value.
    no_list = isinstance(values, (str, bytes, bytearray, Mapping, set, frozenset)) or isinstance(values, tuple) and kind is not tuple
    if no_list or not any(hasattr(kind, name) for name in ("__iter__", "tolist", "numpy")):
        raise TypeError(f"a batch function returns a list with one value per item, an array or a table; this one returned {a_type(kind)}")
    if hasattr(kind, "tolist") or hasattr(kind, "numpy"):
        while hasattr(type(values), "tolist") or hasattr(type(values), "numpy"):
            values = _array(values)
        if not isinstance(values, list):
            raise TypeError("a batch function returns a list with one value per item, an array or a table; this one returned a single number")
        return values
    return list(values)


def _no_array(value: Any) -> None:
    """Takes no array."""


def taking(take: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The encoder's hook, with a way to take arrays."""
    return partial(_hook, take=take)


def _hook(value: Any, take: Callable[[Any], Any] = _no_array) -> Any:
    mark = take(value)
    if mark is not None:
        return mark
    convert = _converter(type(value))
    plain = value if convert is None else convert(value)
    if type(plain) is type(value):
        # No progress; the slow way describes the error.
        raise TypeError
    if _mixed(plain):
        raise TypeError
    return plain


def _hook_without_arrays(value: Any) -> Any:
    if known(type(value)):
        raise TypeError
    return _hook(value)


_TEXT = frozenset((str,))
_LEAVES = frozenset((str, int, float, bool, type(None)))


def _mixed(value: Any) -> bool:
    """Whether a dict in value has keys of more than one type, of which two may be the same text: the encoder would write both."""
    if not isinstance(value, (dict, list, tuple)):
        return False
    seen, pending = set(), [value]
    for each in pending:
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, dict):
            if not _TEXT.issuperset(map(type, each)) and len(set(map(type, each))) > 1:
                return True
            each = each.values()
        if not _LEAVES.issuperset(map(type, each)):
            pending += [x for x in each if isinstance(x, (dict, list, tuple))]
    return False


def _encoder(value: Any, hook: Callable[[Any], Any]) -> str:
    return json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=hook).encode(value)


def _direct(value: Any, hook: Callable[[Any], Any]) -> str:
    """_encoder without its set-up for every value. It handles bare strings separately."""
    if isinstance(value, str):
        return _quoted(value)
    return "".join(_make({}, hook, _quoted, None, ":", ",", False, False, False)(value, 0))


_quoted, _make = json.encoder.encode_basestring, json.encoder.c_make_encoder
_probe = {"a": [1, 2.5, "\u00e9\n", None, True, {}]}
try:
    # These are internal to the standard library, so a test must show that they do the same.
    _fast = _direct if _direct(_probe, _hook) == _encoder(_probe, _hook) else _encoder
except Exception:
    _fast = _encoder


def _walk(value: Any, path: str, above: set, take: Callable[[Any], Any] = _no_array) -> Any:
    """value in the encoder's own types, or an error that names the path."""
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        # Their names with the first letter as an escape, which no text has: item.numbers reads the number again.
        return _ESCAPE + ("4eaN" if value != value else "49nfinity" if value > 0 else "2dInfinity")
    if id(value) in above:
        raise ValueError(f"{path} contains itself; JSON cannot hold a circular value")
    above.add(id(value))
    try:
        if isinstance(value, dict):
            return _object(value, path, above, take)
        if isinstance(value, (list, tuple)):
            return [_walk(each, f"{path}[{i}]", above, take) for i, each in enumerate(value)]
        mark = take(value)
        if mark is not None:
            return mark
        convert = _converter(type(value))
        if convert is None:
            raise TypeError(f"{path} is {a_type(type(value))}, which JSON cannot hold; {_ACCEPTED}")
        try:
            plain = convert(value)
        except Exception as error:
            raise TypeError(f"{path} is {a_type(type(value))} that does not convert: {error}") from error
        if type(plain) is type(value):
            raise TypeError(f"{path} is {a_type(type(value))}, which JSON cannot hold; {_ACCEPTED}")
        return _walk(plain, path, above, take)
    finally:
        above.discard(id(value))


def _object(value: dict, path: str, above: set, take: Callable[[Any], Any]) -> dict:
    plain: dict[str, Any] = {}
    for key, each in value.items():
        text = _key(key, path)
        if text in plain:
            first = next(other for other in value if _key(other, path) == text)
            raise ValueError(f"{path} has the keys {first!r} and {key!r}, which are both {text!r} in JSON; give one another name")
        plain[text] = _walk(each, path + _step(key), above, take)
    return plain


def _key(key: Any, path: str) -> str:
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, (bool, int, float)):
        return json.dumps(key)
    convert = _converter(type(key))
    if convert is not None:
        plain = convert(key)
        if plain is None or isinstance(plain, (str, bool, int, float)):
            return _key(plain, path)
    raise TypeError(f"a key of {path} is {a_type(type(key))}, which JSON cannot have as a key; use strings or numbers")


def _lone(value: Any, path: str) -> str:
    """The error for half of a surrogate pair in value: UTF-8 cannot carry it, and readers of JSON refuse it."""
    pending = [(path, _walk(value, path, set()))]
    for where, each in pending:
        if isinstance(each, dict):
            pending += [(f"a key of {where}", key) for key in each] + [(where + _step(key), x) for key, x in each.items()]
        elif isinstance(each, list):
            pending += [(f"{where}[{i}]", x) for i, x in enumerate(each)]
        elif isinstance(each, str):
            for at, letter in enumerate(each):
                if "\ud800" <= letter <= "\udfff":
                    return (
                        f"{where} has half of a surrogate pair (\\u{ord(letter):04x}, character {at}), which is no text in UTF-8; "
                        "for a name of a file return os.fsencode(name), for other text text.encode(errors='replace').decode()"
                    )
    return f"{path} has half of a surrogate pair, which is no text in UTF-8"


def _step(key: Any) -> str:
    text = str(key)
    return "." + text if text.isidentifier() else f"[{text[:40]!r}]"


def a_type(kind: type) -> str:
    name = type_name(kind)
    return f"{'an' if name[0] in 'aeiouAEIO' else 'a'} {name}"


def type_name(kind: type) -> str:
    module = kind.__module__
    return kind.__qualname__ if module in ("builtins", "__main__") else f"{module}.{kind.__qualname__}"


# Converters by the name of a type or its base, so no type needs an import.
_BY_NAME: dict[str, Callable[[Any], Any]] = {
    "builtins.bytes": lambda value: base64.b64encode(value).decode(),
    "builtins.bytearray": lambda value: base64.b64encode(value).decode(),
    "builtins.memoryview": lambda value: base64.b64encode(value.tobytes()).decode(),
    "builtins.set": lambda value: _sorted(value),
    "builtins.frozenset": lambda value: _sorted(value),
    "enum.Enum": lambda value: value.value,
    "decimal.Decimal": str,
    "uuid.UUID": str,
    "datetime.date": lambda value: value.isoformat(),
    "datetime.time": lambda value: value.isoformat(),
    "datetime.timedelta": lambda value: value.total_seconds(),
}
_known: dict[type, Callable[[Any], Any] | None] = {}


def _converter(kind: type) -> Callable[[Any], Any] | None:
    try:
        return _known[kind]
    except KeyError:
        found = _known[kind] = _find(kind)
        return found


def _find(kind: type) -> Callable[[Any], Any] | None:
    if kind.__module__.startswith("pandas.") and kind.__name__ in ("NAType", "NaTType"):
        return lambda value: None
    for base in kind.__mro__:
        convert = _BY_NAME.get(f"{base.__module__}.{base.__qualname__}")
        if convert is not None:
            return convert
    if hasattr(kind, "__dataclass_fields__"):
        return _dataclass
    if hasattr(kind, "__fspath__"):
        return os.fspath
    if hasattr(kind, "tolist") or hasattr(kind, "numpy"):
        return _array
    return None


def _dataclass(value: Any) -> dict:
    return {field.name: getattr(value, field.name) for field in sys.modules["dataclasses"].fields(value)}


def _sorted(value: Any) -> list:
    try:
        return sorted(value)
    except TypeError:
        return sorted(value, key=lambda each: (type(each).__name__, repr(each)))


def _array(value: Any) -> Any:
    """Arrays and their scalars as nested lists and plain numbers."""
    if not hasattr(value, "tolist"):
        # TensorFlow.
        return value.numpy()
    dtype = getattr(value, "dtype", None)
    if str(dtype).removeprefix("torch.") in ("float32", "float16", "bfloat16") and "numpy" in sys.modules:
        return shortest(value)
    kind = getattr(dtype, "kind", "")
    if getattr(dtype, "names", None):
        return list(value) if value.ndim else _fields(value)
    numpy = sys.modules.get("numpy")
    if kind in ("M", "m") and isinstance(value, (numpy.ndarray, numpy.generic)):
        # Seconds, as for datetime.timedelta. NaT differs from itself.
        plain = value.astype(str) if kind == "M" else value / numpy.timedelta64(1, "s")
        return numpy.where(numpy.ma.filled(value == value, False), plain, None).tolist()
    plain = value.tolist()
    if type(plain) is type(value) and kind != "c":
        # Long doubles and bfloat16 are their own Python values.
        return float(value)
    return plain


def _fields(value: Any) -> list:
    """The fields of an element of a structured array, each with its own type and mask."""
    array = sys.modules["numpy"].ma.array
    names = value.dtype.names
    return [array(value.data[name], mask=value.mask[name]) for name in names] if hasattr(value, "mask") else [value[name] for name in names]

"""Decides whether an item that raised is tried again.

Owns how exceptions are named. Never tries an item.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Iterator, NamedTuple, Sequence


class Retry(NamedTuple):
    """How often an item is tried, and after which exceptions: those of classes that on names, all where it names none."""

    attempts: int = 1
    on: Sequence[str] = ()

    @classmethod
    def of(cls, header: dict) -> Retry:
        """What a run says."""
        return cls(header.get("attempts") or 1, header.get("retryOn") or ())

    def final(self, error: BaseException) -> bool:
        """Whether error ends the item although attempts are left. Of a group one exception in it decides that it does not."""
        if not self.on:
            return False
        try:
            kinds = {kind for each in _members(error) for kind in type(each).__mro__}
            return not any(_class(name) in kinds or any(_is_named(kind, name) for kind in kinds) for name in self.on)
        except Exception:
            return False  # an exception's attributes may be code of the task, and so raise


def _members(error: BaseException) -> Iterator[BaseException]:
    yield error
    members = getattr(error, "exceptions", ())
    for each in members if isinstance(members, (tuple, list)) else ():
        yield from _members(each)


def _class(name: str) -> Any:
    """What users import by a name, such as IOError or asyncio.TimeoutError, which are other names of a class; None where nobody has."""
    module, _, last = name.rpartition(".")
    if module in getattr(sys, "stdlib_module_names", ()):
        importlib.import_module(module)
    return getattr(sys.modules.get(module or "builtins"), last, None)


def _is_named(kind: type, name: str) -> bool:
    """Whether name is that of a class: without its module, with it, or with a package above it (requests.Timeout)."""
    package, _, last = name.rpartition(".")
    whole = f"{kind.__module__}.{kind.__qualname__}"
    return f".{whole}".endswith(f".{name}") or whole.startswith(f"{package}.") and whole.endswith(f".{last}")

"""A pickler that writes the same bytes for the same value in every process of one Python version.

Owns what would differ: the order of sets, and which texts are one object. Any unpickler loads it.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, Callable


def dumps(value: Any, pickler: Callable[[Any, int], pickle._Pickler], protocol: int) -> bytes:
    """value as bytes that pickler writes."""
    out = io.BytesIO()
    pickler(out, protocol).dump(value)
    return out.getvalue()


class Pickler(pickle._Pickler):
    """It is written in Python: the pickler in C asks nobody how it writes sets and texts."""

    dispatch = dict(pickle._Pickler.dispatch)

    def __init__(self, out: Any, protocol: int) -> None:
        super().__init__(out, protocol)
        self._texts: dict[str, str] = {}

    def _save_text(self, text: str) -> None:
        first = self._texts.setdefault(text, text)
        if id(first) in self.memo:
            self.write(self.get(self.memo[id(first)][0]))
        else:
            self.save_str(first)

    def _save_set(self, values: set) -> None:
        self.write(pickle.EMPTY_SET)
        self.memoize(values)
        self.write(pickle.MARK)
        for each in sorted(values, key=_order):
            self.save(each)
        self.write(pickle.ADDITEMS)

    def _save_frozenset(self, values: frozenset) -> None:
        self.save_reduce(frozenset, (sorted(values, key=_order),), obj=values)

    dispatch.update({str: _save_text, set: _save_set, frozenset: _save_frozenset})


def _order(value: Any) -> str:
    """Where value stands in a set, whatever its hash: its type, and what it prints as."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, (tuple, frozenset)):
        parts = [_order(each) for each in value]
        return f"{kind} {sorted(parts) if isinstance(value, frozenset) else parts}"
    return f"{kind} {getattr(value, '__qualname__', None) or repr(value)}"

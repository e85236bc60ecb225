"""What a model says of itself while it has requests: those that run and wait, tokens per second, cache hits.

Owns the counts of the last ten seconds. Rests on the usage in responses, where an engine does not count by itself.
"""

from __future__ import annotations

from collections import deque
from time import monotonic
from typing import Any, Deque

SPAN = 10.0
"""The seconds over which tokens are counted."""
_COUNTS = ("prompt_tokens", "generation_tokens", "cache_queries", "cache_hits")


class Meter:
    def __init__(self) -> None:
        self._counted = dict.fromkeys(_COUNTS, 0)
        self._looks: Deque[tuple[float, dict]] = deque()

    def answered(self, body: Any) -> None:
        """Count the tokens of a response."""
        usage = _object(body).get("usage")
        prompt = _number(usage, "prompt_tokens", "input_tokens")
        self._counted["prompt_tokens"] += prompt
        self._counted["generation_tokens"] += _number(usage, "completion_tokens", "output_tokens")
        details = _object(_object(usage).get("prompt_tokens_details") or _object(usage).get("input_tokens_details"))
        cached = details.get("cached_tokens")
        if isinstance(cached, int):
            self._counted["cache_queries"] += prompt
            self._counted["cache_hits"] += cached

    def look(self, requests: int, load: dict) -> dict:
        """What to report, with so many requests under way and what the engine knows itself."""
        now = monotonic()
        counts = {name: load.get(name, counted) for name, counted in self._counted.items()}
        while self._looks and now - self._looks[0][0] > SPAN:
            self._looks.popleft()
        self._looks.append((now, counts))
        began, before = self._looks[0]
        told = {"running": load.get("running", requests)}
        if "waiting" in load:
            told["waiting"] = load["waiting"]
        if now > began:
            for name in ("prompt_tokens", "generation_tokens"):
                told[name + "_per_second"] = round((counts[name] - before[name]) / (now - began), 1)
        queries = counts["cache_queries"] - before["cache_queries"]
        if queries > 0:
            told["cache_hits"] = round((counts["cache_hits"] - before["cache_hits"]) / queries, 3)
        return {**told, **{name: number for name, number in load.items() if name not in told and name not in _COUNTS}}


def _object(value: Any) -> dict:
    return value if isinstance(value, dict) else {}


def _number(value: Any, *names: str) -> int:
    """The first of these fields that is a number."""
    return next((found for name in names if isinstance(found := _object(value).get(name), int)), 0)

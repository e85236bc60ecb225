"""What vLLM tells its loggers of statistics, in sum.

Owns the sums, which it gives by gpumux's names and by those of vLLM's metrics. Never fails the engine, which calls it.
"""

from __future__ import annotations

from typing import Any


class Stats:
    """In place of vLLM's loggers, which take processor time for each request and step."""

    def __init__(self) -> None:
        self._running: dict[int, int] = {}
        self._waiting: dict[int, int] = {}
        self._queries = self._hits = self._prompt = self._generation = 0
        self._wrong: Exception | None = None

    def record(self, scheduler_stats: Any, iteration_stats: Any, *_: Any, engine_idx: int = 0, **__: Any) -> None:
        try:
            if scheduler_stats is not None:
                self._running[engine_idx] = scheduler_stats.num_running_reqs
                self._waiting[engine_idx] = scheduler_stats.num_waiting_reqs + scheduler_stats.num_skipped_waiting_reqs
                self._queries += scheduler_stats.prefix_cache_stats.queries
                self._hits += scheduler_stats.prefix_cache_stats.hits
            if iteration_stats is not None:
                self._prompt += iteration_stats.num_prompt_tokens
                self._generation += iteration_stats.num_generation_tokens
        except Exception as error:  # of another version; raised here it would end the engine
            self._wrong = error

    def __getattr__(self, name: str) -> Any:
        """Whatever else a logger is told."""
        return lambda *_, **__: None

    def load(self) -> dict:
        if self._wrong is not None:
            raise self._wrong
        running, waiting = sum(self._running.values()), sum(self._waiting.values())
        return {
            "running": running, "waiting": waiting, "prompt_tokens": self._prompt, "generation_tokens": self._generation,
            "cache_queries": self._queries, "cache_hits": self._hits,
            "vllm:num_requests_running": running, "vllm:num_requests_waiting": waiting,
            "vllm:prompt_tokens_total": self._prompt, "vllm:generation_tokens_total": self._generation,
            "vllm:prefix_cache_queries_total": self._queries, "vllm:prefix_cache_hits_total": self._hits,
        }

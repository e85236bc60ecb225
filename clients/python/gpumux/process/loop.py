"""The event loop of a task process, for tasks that are async.

Owns the loop and what runs on it. Begins with the first awaitable: a task without any never imports asyncio. Stops with close.
"""

from __future__ import annotations

from typing import Any, Iterable


class Loop:
    """Only the main thread uses it."""

    def __init__(self) -> None:
        self._loop: Any = None
        self._awaited: Any = None

    def get(self) -> Any:
        """The event loop of this process."""
        if self._loop is None:
            import asyncio

            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
        return self._loop

    def wait_for(self, awaitable: Any) -> Any:
        """What awaitable gives."""
        import asyncio

        loop = self.get()
        self._awaited = asyncio.ensure_future(awaitable, loop=loop)
        try:
            return loop.run_until_complete(self._awaited)
        finally:
            if self._awaited.done():
                seen(self._awaited)
                self._awaited = None  # and what it returned or raised

    def cancel(self, begun: Iterable[Any]) -> None:
        """Cancel what the process waits for, and those of begun that run."""
        self._cancel({self._awaited, *begun})

    def _cancel(self, begun: set | None = None) -> None:
        if self._loop is None or self._loop.is_closed():
            return
        import asyncio

        running = asyncio.all_tasks(self._loop)
        running = running if begun is None else running & begun
        for task in running:
            task.cancel()
        if running:
            self._loop.run_until_complete(asyncio.gather(*running, return_exceptions=True))

    def close(self) -> None:
        """Cancel all that runs, so that its clean-up happens."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            self._cancel()
            self._loop = None
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()


def seen(task: Any) -> None:
    """Keep asyncio from logging what the task raised."""
    if not task.cancelled():
        task.exception()

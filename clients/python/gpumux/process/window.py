"""The items of a task with gpumux.concurrent: many run at the same time on the event loop.

Owns which of them run, and answers each when it has ended, in whatever order. Takes further runs from the wire meanwhile, and cancels the
items of those that the worker gives up.
"""

from __future__ import annotations

from collections import deque
from contextvars import ContextVar
from time import perf_counter
from typing import TYPE_CHECKING, Any, Callable, Deque, Optional

from . import memory
from .fault import describe, is_memory
from .files import Files
from .loop import seen
from .peak import LONG, Peak
from .raw import Raw
from .retry import Retry
from .typed import pack, read
from .wire import Wire, check_run, items

if TYPE_CHECKING:
    from .call import Caller

_running: ContextVar[Optional[_Item]] = ContextVar("gpumux item", default=None)
# How often the window looks for items that are late, in seconds.
_TICK = 0.1


class _Item:
    """An item from its arrival to its answer."""

    __slots__ = (
        "run", "n", "raw", "retry", "timeout", "folder", "files", "tried", "ended", "data", "fault", "final", "late", "began", "alive", "share", "task",
    )

    def __init__(self, run: int, n: int, raw: memoryview | Raw, retry: Retry, timeout: float, folder: str) -> None:
        self.run, self.n, self.raw, self.retry = run, n, raw, retry
        self.timeout = timeout
        """The seconds that a try may take, from its beginning or its last progress, which was at alive; 0: any."""
        self.folder = folder and f"{folder}/{run}-{n}"
        self.files: Files | None = None
        self.tried = 0
        self.ended = self.final = self.late = False
        self.data: bytes | Raw = b""
        self.fault: dict | None = None
        self.began = self.alive = self.share = 0.0
        self.task: Any = None


class Window:
    """Runs items with an async function, up to most of them at a time."""

    def __init__(self, caller: Caller, wire: Wire, peak: Peak, function: Callable[[Any], Any], most: int) -> None:
        self.closing = False
        """The tasks that are left are cancelled, and none is answered any more."""
        self.most = most
        self._caller, self._wire, self._peak = caller, wire, peak
        self._function = function
        self._waiting: Deque[_Item] = deque()
        self._open: dict[_Item, None] = {}
        """The items that run, in the order in which they began."""
        self._ended: Deque[_Item] = deque()
        """Those that have ended and have no answer."""
        self._canceled: list[frozenset[int]] = []
        """The runs of each message that cancels some, while items of theirs run."""
        # The time of the process, shared among the items that run: what one of them gets is its part of busy.
        self._shared, self._when = 0.0, 0.0
        # The seconds that the loop has run, less those in which an item blocked the others, and the time when it was counted.
        self._clock, self._counted = 0.0, 0.0
        self._ticking = False
        # How many late items may be ended here before one succeeds. More at once look like a process that hangs, which the worker ends.
        self._trust = 0
        self._news: Any = None

    def run(self, header: dict, body: memoryview, loop: Any) -> None:
        """Run the items of a run, and of those that come meanwhile for the same function."""
        self._add(header, body)
        self._wire.begin_run(0)  # its results are posted as they come
        try:
            self._caller.wait_for(self._serve(loop, (header.get("target"), header.get("task"))))
        finally:
            self._wire.unwatch(loop)

    async def _serve(self, loop: Any, function: tuple) -> None:
        import asyncio

        self._news = asyncio.Event()
        self._wire.watch(loop, self._news.set)
        while True:
            self._hear(function)
            if self._wire.over:
                self._wire.unwatch(loop)
            while self._waiting and len(self._open) < self.most:
                self._begin(self._waiting.popleft(), loop)
            if not self._open:
                return
            await self._news.wait()
            self._news.clear()
            if self._ended:
                self._answer()

    def tasks(self) -> set:
        """The tasks of the items that run."""
        return {item.task for item in self._open}

    def _hear(self, function: tuple) -> None:
        """Take the messages that have come, up to one that is not for this function."""
        while True:
            message = self._wire.peek()
            kind = message and message[0].get("type")
            if kind == "run" and (message[0].get("target"), message[0].get("task")) == function:
                check_run(*message)
                memory.prove()
                self._add(*message)
            elif kind == "cancel":
                self._cancel(frozenset(message[0]["runs"]))
            else:
                return
            self._wire.read()

    def _add(self, header: dict, body: memoryview) -> None:
        run, retry, timeout, folder = header["run"], Retry.of(header), header.get("timeout") or 0, header.get("folder") or ""
        for n, raw in enumerate(items(header, body)):
            self._waiting.append(_Item(run, n, raw, retry, timeout, folder))

    def _cancel(self, runs: frozenset[int]) -> None:
        """End the items of these runs without answers. Those that run are told so by asyncio."""
        self._waiting = deque(item for item in self._waiting if item.run not in runs)
        self._canceled.append(runs)
        for item in self._open:
            if item.run in runs and not item.late:
                item.task.cancel()
        self._confirm()

    def _is_canceled(self, item: _Item) -> bool:
        return any(item.run in runs for runs in self._canceled)

    def _confirm(self) -> None:
        """Tell the worker which cancelled runs have no item left."""
        for runs in self._canceled[:]:
            if not any(item.run in runs for item in (*self._open, *self._ended)):
                self._canceled.remove(runs)
                self._wire.canceled(sorted(runs))

    def _begin(self, item: _Item, loop: Any) -> None:
        item.began, item.share = self._pass()
        self._open[item] = None
        item.task = loop.create_task(self._call(item))
        # A task that is cancelled before its first step runs nothing of _call.
        item.task.add_done_callback(lambda task: self._end(item, task))
        item.alive = self._clock
        if item.timeout and not self._ticking:
            self._counted = item.began
            self._tick(loop)

    def _end(self, item: _Item, task: Any) -> None:
        if self.closing:
            seen(task)
            return
        if task.cancelled() or task.exception() is not None:
            # Nothing of _call has run, or what surrounds the function has raised.
            from asyncio import CancelledError

            item.fault = describe(CancelledError() if task.cancelled() else task.exception())
        if item.fault is None:
            self._trust = max(2, self.most // 4)
        item.share = self._pass()[1] - item.share
        item.ended, item.raw = True, memoryview(b"")
        del self._open[item]
        self._ended.append(item)
        self._news.set()

    def _pass(self) -> tuple[float, float]:
        """Book that the number of items that run changes now; the time, and what an item that ran all along has got of it."""
        now = perf_counter()
        if self._open:
            self._shared += (now - self._when) / len(self._open)
        self._when = now
        return now, self._shared

    def _tick(self, loop: Any) -> None:
        """Cancel the items that are late, and come again while one may be."""
        now = perf_counter()
        self._clock += min(now - self._counted, 2 * _TICK)
        self._counted = now
        timed = [item for item in self._open if item.timeout]
        for item in timed:
            if self._trust and not item.late and self._clock - item.alive > item.timeout and not self._is_canceled(item):
                self._trust -= 1
                item.late = True
                item.task.cancel()
        self._ticking = bool(timed) and not self.closing
        if self._ticking:
            loop.call_later(_TICK, self._tick, loop)

    async def _call(self, item: _Item) -> None:
        _running.set(item)
        while True:
            item.tried += 1
            fault, full = None, False
            try:
                item.data = pack(await self._function(read(item.raw)))
            except BaseException as error:
                if self.closing:
                    raise
                self._caller.survive(error)
                if self._is_canceled(item):
                    return
                if item.late:
                    error = _late(item, error)
                full, item.final = is_memory(error), item.retry.final(error)
                fault = describe(error, full)
            if fault is None:
                break
            if item.files is not None:
                item.files.drop()
            if full:
                memory.trim()
            if item.final or item.tried >= item.retry.attempts:
                break
            if item.timeout:
                item.late, item.alive = False, self._clock
                self._wire.progress(item.run, item.n, b"null")  # restarts the worker's clock
        if self._caller.forked():
            self._caller.leave(None)
        item.fault = fault

    def _answer(self) -> None:
        """Answer the items that have ended."""
        self._caller.finish()
        now = perf_counter()
        oldest = min(item.began for item in self._ended)
        peak = 0 if now - oldest < LONG and now < self._peak.due else self._peak.measure(now)
        while self._ended:
            item = self._ended.popleft()
            if self._is_canceled(item):
                if item.files is not None:
                    item.files.drop()
            elif item.fault is None:
                files = item.files.take() if item.files is not None else ()
                self._wire.result(item.run, item.n, item.data, item.share, now, item.tried, peak, files)
            else:
                self._wire.fault(item.fault, item.run, item.n, item.tried, item.share, peak, item.final, item.late)
                self._caller.answered()
                self._wire.await_next()
                self._wire.sending = True
        self._confirm()
        self._wire.post()
        self._caller.answered()

    def progress(self, value: bytes) -> None:
        """Tell the worker how far the item is that calls, or what a caller beside all items says of the process."""
        item = _running.get()
        if item is None and self._open:
            self._wire.progress(0, 0, value)
        elif item is not None and not item.ended:
            item.alive = self._clock
            self._wire.progress(item.run, item.n, value)

    def save(self, name: str, data: Any) -> None:
        """Keep a file of the item that calls."""
        item = _running.get()
        if item is None or item.ended:
            raise RuntimeError("gpumux.save: no item runs here; call it in the item's own function, or by asyncio.to_thread")
        if item.files is None:
            item.files = Files()
        item.files.save(item.folder, name, data)


def _late(item: _Item, error: BaseException) -> TimeoutError:
    """What a late item raises in place of the error in which its cancellation has ended."""
    from asyncio import CancelledError

    getattr(item.task, "uncancel", int)()
    late = TimeoutError(f"no result after {item.timeout:g} s").with_traceback(error.__traceback__)
    late.__cause__ = None if isinstance(error, CancelledError) else error
    return late

"""The items of a task with gpumux.concurrent: many run at the same time on the event loop.

Owns which of them run, and answers each in its turn: one that has ended waits for those before it. Takes further runs from the wire
meanwhile. It begins at most span items beyond the last answer, so that the worker knows who may have run when the process dies.
"""

from __future__ import annotations

from collections import deque
from contextvars import ContextVar
from time import perf_counter
from typing import TYPE_CHECKING, Any, Callable, Deque, Optional

from . import memory
from .fault import describe, is_memory
from .files import Files
from .peak import LONG, Peak
from .raw import Raw
from .typed import pack, read
from .wire import Wire, check_run, trace

if TYPE_CHECKING:
    from .call import Caller

_running: ContextVar[Optional[_Item]] = ContextVar("gpumux item", default=None)


class _Item:
    """An item from its arrival to its answer."""

    __slots__ = ("run", "n", "raw", "attempts", "folder", "files", "tried", "ended", "data", "fault", "began", "share", "progress", "task")

    def __init__(self, run: int, n: int, raw: memoryview, attempts: int, folder: str) -> None:
        self.run, self.n, self.raw, self.attempts = run, n, raw, attempts
        self.folder = folder and f"{folder}/{run}-{n}"
        self.files: Files | None = None
        self.tried = 0
        self.ended = False
        self.data: bytes | Raw = b""
        self.fault: dict | None = None
        self.began = self.share = 0.0
        self.progress: bytes | None = None
        """The newest one that the worker has not seen: it hears of the item whose answer is due."""


class Window:
    """Runs items with an async function, up to most of them at a time."""

    def __init__(self, caller: Caller, wire: Wire, peak: Peak, function: Callable[[Any], Any], most: int) -> None:
        self.closing = False
        """The tasks that are left are cancelled, and none is answered any more."""
        self.span = most if most == 1 else 2 * most
        """How many items may have begun and not be answered: twice as many as run, so that a slow one does not stop the others."""
        self._caller, self._wire, self._peak = caller, wire, peak
        self._function, self._most = function, most
        self._waiting: Deque[_Item] = deque()
        self._open: Deque[_Item] = deque()
        # The time of the process, shared among the items that run: what one of them gets is its part of busy.
        self._active, self._shared, self._when = 0, 0.0, 0.0
        self._news: Any = None

    def run(self, header: dict, body: memoryview, loop: Any) -> None:
        """Run the items of a run, and of those that come meanwhile for the same function."""
        self._add(header, body)
        self._wire.begin_run(0)  # its results are posted as they come
        try:
            loop.run_until_complete(self._serve(loop, (header.get("target"), header.get("task"))))
        finally:
            loop.remove_reader(self._wire.fileno())

    async def _serve(self, loop: Any, function: tuple) -> None:
        import asyncio

        self._news = asyncio.Event()
        loop.add_reader(self._wire.fileno(), self._news.set)
        while True:
            while True:
                message = self._wire.peek()
                if message is None or message[0].get("type") != "run" or (message[0].get("target"), message[0].get("task")) != function:
                    break
                check_run(*message)
                trace(message[0])
                memory.prove()
                self._add(*message)
                self._wire.read()
            if self._wire.over:
                loop.remove_reader(self._wire.fileno())
            self._begin(loop)
            if not self._open:
                return
            await self._news.wait()
            self._news.clear()
            self._answer()

    def _add(self, header: dict, body: memoryview) -> None:
        run, attempts, folder = header["run"], header.get("attempts") or 1, header.get("folder") or ""
        start = 0
        for n, size in enumerate(header["sizes"]):
            self._waiting.append(_Item(run, n, body[start : start + size], attempts, folder))
            start += size

    def _begin(self, loop: Any) -> None:
        while self._waiting and self._active < self._most and len(self._open) < self.span:
            item = self._waiting.popleft()
            self._open.append(item)
            item.began, item.share = self._pass(1)
            item.task = loop.create_task(self._call(item))

    def _pass(self, more: int) -> tuple[float, float]:
        """Book that so many more items run from now on; the time, and what an item that ran all along has got of it."""
        now = perf_counter()
        if self._active:
            self._shared += (now - self._when) / self._active
        self._when = now
        self._active += more
        return now, self._shared

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
                fault, full = describe(error), is_memory(error)
            if fault is None:
                break
            if item.files is not None:
                item.files.drop()
            if full:
                memory.trim(hard=True)
            if item.tried >= item.attempts:
                break
        if self._caller.forked():
            self._caller.leave(None)
        item.fault = fault
        item.share = self._pass(-1)[1] - item.share
        item.ended = True
        item.raw = memoryview(b"")
        self._news.set()

    def _answer(self) -> None:
        """Answer the items whose turn it is."""
        if not self._open[0].ended:
            return
        self._caller.finish()
        now = perf_counter()
        peak = 0 if now - self._open[0].began < LONG and now < self._peak.due else self._peak.measure(now)
        while self._open and self._open[0].ended:
            item = self._open.popleft()
            if item.fault is None:
                files = item.files.take() if item.files is not None else ()
                self._wire.result(item.run, item.n, item.data, item.share, now, item.tried, peak, files)
                continue
            self._wire.fault(item.fault, item.run, item.n, item.tried, item.share, peak)
            self._caller.answered()
            self._wire.await_next()
            self._wire.sending = True
        self._wire.post()
        self._caller.answered()
        if self._open and self._open[0].progress is not None:
            value, self._open[0].progress = self._open[0].progress, None
            self._wire.progress(self._open[0].run, self._open[0].n, value)

    def progress(self, value: bytes) -> None:
        """Tell the worker how far the item is that calls, once its answer is due."""
        item = _running.get()
        if item is None or item.ended:
            return
        if self._open and self._open[0] is item:
            self._wire.progress(item.run, item.n, value)
        else:
            item.progress = value

    def save(self, name: str, data: Any) -> None:
        """Keep a file of the item that calls."""
        item = _running.get()
        if item is None or item.ended:
            raise RuntimeError("gpumux.save: no item runs here; call it in the item's own function, or by asyncio.to_thread")
        if item.files is None:
            item.files = Files()
        item.files.save(item.folder, name, data)

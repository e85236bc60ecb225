"""Calls the task for the items of a run and answers each.

Owns attempts, micro-batches and what happens when the task raises. Never reads the wire. An item is answered before the
next one starts, so that a death loses none that is finished. A task with gpumux.concurrent has a Window instead.
"""

from __future__ import annotations

import functools
import math
import mmap
import os
import sys
import threading
from numbers import Real
from time import perf_counter
from types import CoroutineType
from typing import Any, Callable

import gpumux

from .fault import describe, is_memory
from .files import Files
from .loop import Loop
from .memory import trim
from .peak import LONG, Peak
from .raw import Raw
from .retry import Retry
from .task import LoadError
from .typed import pack, pack_all, read, read_all, rows, spread
from .window import Window
from .wire import MAX_FRAME, Wire, items

# Micro-batches that must succeed before a halved limit grows, at first and at most.
_PATIENCE = 4
_MOST_PATIENCE = 256


class Caller:
    """Runs items with the function that it was told to use. Only the main thread uses it."""

    def __init__(self, wire: Wire, peak: Peak) -> None:
        self.batch = self.concurrent = 0
        """How many items it takes in one call, and how many at the same time; 0: one."""
        self.ended: Callable[[], None] = lambda: None
        """Raises SystemExit when the worker has told the process to end."""
        self._function: Callable[..., Any] = lambda item: item
        self._wire = wire
        self._peak = peak
        self.forked: Callable[[], bool] = lambda: False
        """Whether this process was forked by the task."""
        self._main = threading.get_ident()
        self._loop = Loop()
        self.wait_for = self._loop.wait_for
        self._exit: Any = None
        self._window: Window | None = None
        self._cost: Callable[[Any], Any] | None = None
        self._table: Callable[[list], Any] | None = None
        self._stdout, self._stderr = sys.stdout, sys.stderr
        self._run = 0
        self._n = 0
        self._files = Files()
        self._folder = ""
        gpumux._report, gpumux._save = self._progress, self._save

    def use(self, function: Callable[..., Any]) -> None:
        """Call function for the items."""
        self._enter(getattr(function, "__self__", function))
        self.forked = _fork_mark()
        self._function = function = spread(function)
        self.batch = self._limit = int(getattr(function, "__gpumux_batch__", 0))
        self._good, self._grown, self._patience = 0, False, _PATIENCE
        self._table = _maker(getattr(function, "__gpumux_format__", None))
        self._cost, self._most = getattr(function, "__gpumux_limit__", (None, math.inf))
        self.concurrent = int(getattr(function, "__gpumux_concurrent__", 0))
        self._window = Window(self, self._wire, self._peak, function, self.concurrent) if self.concurrent else None

    def _enter(self, task: Any) -> None:
        """Enter a task that is a context manager, one of asyncio on the loop of its items. close leaves it, or calls its close."""
        kind, leave = type(task), None
        try:
            if hasattr(kind, "__aenter__"):
                leave = functools.partial(task.__aexit__, None, None, None)
                self.wait_for(task.__aenter__())
            elif hasattr(kind, "__enter__"):
                leave = functools.partial(task.__exit__, None, None, None)
                task.__enter__()
            elif hasattr(kind, "close"):
                leave = task.close
        except BaseException as error:
            raise LoadError(describe(error)) from error
        self._exit = leave

    def run(self, header: dict, body: memoryview) -> None:
        """Run the items of one run, which lie one after the other in body."""
        if self._window is not None:
            self._window.run(header, body, self._loop.get())
            return
        retry = Retry.of(header)
        self._run, self._folder = header["run"], header.get("folder") or ""
        self._wire.begin_run(len(header["sizes"]))
        try:
            if self.batch:
                self._batches(list(items(header, body)), retry)
                return
            for n, raw in enumerate(items(header, body)):
                self._single(n, raw, retry, self._one)
        finally:
            self._run = 0

    def close(self) -> None:
        """Leave the task, and cancel what async tasks left running, so their clean-up happens. The worker is told what leaving raises."""
        leave, self._exit = self._exit, None
        if self._window is not None:
            self._window.closing = True
        if leave is not None:
            # What the task itself has running may be needed to leave it.
            self._loop.cancel(self._window.tasks() if self._window is not None else ())
            self._leave(leave)
        self._loop.close()
        self.ended()

    def _leave(self, leave: Callable[[], Any]) -> None:
        try:
            value = leave()
            if hasattr(value, "__await__"):
                self.wait_for(value)
        except SystemExit:
            pass
        except BaseException as error:
            sys.excepthook(type(error), error, error.__traceback__)
            try:
                self._wire.fault(describe(error))
            except OSError:
                pass  # the worker is gone

    # One item.

    def _single(self, n: int, raw: memoryview | Raw, retry: Retry, call: Callable[[memoryview | Raw], bytes | Raw]) -> None:
        self._n = n
        tried = 0
        begin = perf_counter()
        while True:
            tried += 1
            fault = None
            try:
                data = call(raw)
            except BaseException as error:
                self.survive(error)
                memory, final = is_memory(error), retry.final(error)
                fault = describe(error, memory)
            # Here the exception is gone, with the frames that hold arrays.
            if fault is None:
                break
            self._files.drop()
            if memory:
                trim()
            if final or tried >= retry.attempts:
                break
        self.finish()
        ended = perf_counter()
        peak = 0 if ended - begin < LONG and ended < self._peak.due else self._peak.measure(ended)
        if fault is None:
            self._wire.result(self._run, n, data, ended - begin, ended, tried, peak, self._files.names and self._files.take())
        else:
            self._wire.fault(fault, self._run, n, tried, ended - begin, peak, final)
        self.answered()
        if fault is not None:
            self._wire.await_next()

    def _one(self, raw: memoryview | Raw) -> bytes | Raw:
        value = self._function(read(raw))
        if type(value) is CoroutineType:
            value = self.wait_for(value)
        return pack(value)

    def _alone(self, raw: memoryview | Raw) -> bytes | Raw:
        (data,) = self._many([raw])
        if isinstance(data, BaseException):
            raise data
        return data

    # Micro-batches.

    def _batches(self, raws: list[memoryview | Raw], retry: Retry) -> None:
        costs: list[float | BaseException] = []
        n = 0
        while n < len(raws):
            end = min(n + self._limit, len(raws))
            if self._cost is not None:
                end = self._affordable(raws, n, end, costs)
                if isinstance(costs[n], BaseException):
                    self._single(n, raws[n], retry._replace(attempts=1), _raiser(costs[n]))
                    n += 1
                    continue
            if self._batch(n, raws[n:end], retry):
                n = end

    def _affordable(self, raws: list[memoryview | Raw], n: int, end: int, costs: list) -> int:
        """Where a micro-batch from n to end at most ends because of its costs. costs has those of the first items and grows."""
        total = 0.0
        for i in range(n, end):
            if i == len(costs):
                costs.append(self._cost_of(raws[i]))
            if isinstance(costs[i], BaseException):
                return max(i, n + 1)
            total += costs[i]
            if total > self._most and i > n:
                return i
        return end

    def _cost_of(self, raw: memoryview | Raw) -> Any:
        """What an item costs, or the exception of finding out."""
        try:
            cost = self._cost(read(raw))
            if not isinstance(cost, Real) or not cost >= 0:
                raise TypeError(f"the cost of @gpumux.batch gave {cost!r:.80} for this item; return a number of at least 0")
            return float(cost)
        except BaseException as error:
            self.survive(error)
            return error

    def _batch(self, n: int, raws: list[memoryview | Raw], retry: Retry) -> bool:
        """Answer the items from position n on; False asks for them again in a smaller micro-batch."""
        if len(raws) == 1:
            self._single(n, raws[0], retry, self._alone)
            self._grow()
            return True
        self._n = n
        answers = None
        memory = False
        begin = perf_counter()
        try:
            answers = self._many(raws)
        except BaseException as error:
            self.survive(error)
            memory = is_memory(error)
        if answers is not None:
            self.finish()
            ended = perf_counter()
            peak = 0 if ended - begin < LONG and ended < self._peak.due else self._peak.measure(ended)
            self._answer(n, answers, (ended - begin) / len(raws), ended, peak)
            self.answered()
            self._grow()
        elif memory:
            trim()
            self._halve(len(raws))
            return False
        else:
            for i, raw in enumerate(raws):
                self._single(n + i, raw, retry, self._alone)
        return True

    def _many(self, raws: list[memoryview | Raw]) -> list:
        """The values of a micro-batch, encoded, each or the exception of its encoding."""
        items = read_all(raws)
        values = self._function(items if self._table is None else self._table(items))
        if type(values) is CoroutineType:
            values = self.wait_for(values)
        if self._table is not None:
            from . import tables

            values = tables.in_order(values)
            if type(values) is dict:
                values = tables.of_columns(values, "a batch function returned a dict")
        values = rows(values)
        if len(values) != len(raws):
            name = getattr(self._function, "__name__", "the task")
            raise ValueError(f"{name} returned {len(values)} for a batch of {len(raws)}; return one value for each item, in order")
        return pack_all(values)

    def _answer(self, n: int, answers: list, busy: float, ended: float, peak: int) -> None:
        """Send values in as few messages as possible, with the faults between them in order."""
        values: list[bytes | Raw] = []
        total = 0
        for i, answer in enumerate(answers):
            failed = isinstance(answer, BaseException)
            if values and (failed or total + len(answer) > MAX_FRAME // 2):
                self._wire.results(self._run, n + i - len(values), values, busy, ended, peak)
                values, total = [], 0
            if failed:
                self._wire.fault(describe(answer), self._run, n + i, 1, busy, peak)
                self.answered()
                self._wire.await_next()
                self._wire.sending = True
            else:
                values.append(answer)
                total += len(answer)
        if values:
            self._wire.results(self._run, n + len(answers) - len(values), values, busy, ended, peak)

    def _halve(self, tried: int) -> None:
        # After a growth that was too large, the next one needs more successes.
        if self._grown:
            self._patience = min(self._patience * 2, _MOST_PATIENCE)
        self._grown = False
        self._limit = max(1, tried // 2)
        self._good = 0

    def _grow(self) -> None:
        if self._limit >= self.batch:
            return
        self._good += 1
        if self._good >= self._patience:
            self._good = 0
            self._grown = True
            self._limit = min(self.batch, self._limit + max(1, self._limit // 4))

    # What surrounds a call.

    def survive(self, error: BaseException) -> None:
        """Go on after an exception of the task, unless this process must end or is a forked child."""
        if self.forked():
            self.leave(error)
        self.ended()

    def finish(self) -> None:
        """After a call: a forked child must not answer; all output comes before the answer."""
        if self.forked():
            self.leave(None)
        self._wire.sending = True
        out, err = sys.stdout, sys.stderr
        try:
            out.flush()
            err.flush()
        except Exception:
            _flush(out)
            _flush(err)
        if out is not self._stdout:
            _flush(self._stdout)
        if err is not self._stderr:
            _flush(self._stderr)

    def answered(self) -> None:
        self._wire.sending = False
        self.ended()

    def leave(self, error: BaseException | None) -> None:
        status = 0
        if isinstance(error, SystemExit):
            status = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        elif error is not None:
            sys.excepthook(type(error), error, error.__traceback__)
            status = 1
        _flush(sys.stdout)
        _flush(sys.stderr)
        os._exit(status & 0xFF)

    def _save(self, name: str, data: Any) -> None:
        if self.forked():
            raise RuntimeError("gpumux.save: this process is not the one that runs the item; hand the file to that one, and save it there")
        if self._window is not None:
            self._window.save(name, data)
            return
        if self.batch:
            raise RuntimeError("gpumux.save: a task with @gpumux.batch has many items at once; save from one that takes single items")
        if not self._run:
            raise RuntimeError("gpumux.save: no item runs")
        self._files.save(self._folder and f"{self._folder}/{self._run}-{self._n}", name, data)

    def _progress(self, value: bytes) -> None:
        run, n = self._run, self._n
        if self.forked():
            return
        if self._window is not None:
            self._window.progress(value)
        elif run:
            self._wire.progress(run, n, value)
        if self._window is not None or run:
            if threading.get_ident() == self._main:
                self.ended()


def _maker(format: str | None) -> Callable[[list], Any] | None:
    if format is None:
        return None
    from . import tables

    return tables.maker(format)


def _raiser(error: BaseException) -> Callable[[memoryview | Raw], bytes]:
    def fail(raw: memoryview | Raw) -> bytes:
        raise error

    return fail


def _fork_mark() -> Callable[[], bool]:
    """A function that tells whether this process was forked from the present one, by whatever means."""
    if sys.platform == "linux":
        wipe_on_fork = 18
        mark = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        try:
            # A forked child sees this page as zeros. Reading it is cheaper than asking for the process number.
            mark.madvise(wipe_on_fork)
            mark[0] = 1
            return lambda: not mark[0]
        except OSError:
            pass
    process = os.getpid()
    return lambda: os.getpid() != process


def _flush(stream: Any) -> None:
    try:
        stream.flush()
    except Exception:
        # None, closed or replaced by the task.
        pass

"""concurrent.futures on slots."""

from __future__ import annotations

import concurrent.futures
import json
import os
import pickle
import shutil
import sys
import threading
import weakref
from typing import IO, Any, Callable, Optional, Sequence

from .. import remote
from . import function as functions
from .command import Command
from .fault import Fault
from .options import Memory, Words, flags, seconds, words


class Executor(concurrent.futures.Executor):
    """Runs calls in slots on this machine. Where one fails, its future raises a Fault.

    Slots, budgets, faults and retries are those of gpumux.map; arguments and results are pickled. Nothing is kept: what is not done
    when the program ends is lost. Functions of notebooks, lambdas and inner functions need cloudpickle.
    """

    def __init__(
        self,
        slots: Optional[int] = None,
        *,
        memory: Optional[Memory] = None,
        devices: Optional[Words] = None,
        sharing: Optional[str] = None,
        mode: Optional[str] = None,
        timeout: Optional[float] = None,
        attempts: Optional[int] = None,
        python: Optional[str] = None,
        pass_env: Sequence[str] = (),
    ) -> None:
        # Held while a call is written. What the reader needs is not under it: the command may wait for the reader.
        self._writing = threading.Lock()
        self._pending: dict[int, concurrent.futures.Future] = {}
        self._names: "weakref.WeakKeyDictionary[Any, str]" = weakref.WeakKeyDictionary()
        self._made: set[str] = set()
        self._count, self._closed = 0, False
        self._command = Command(
            self,
            [
                "stream", remote.TARGET, "--unordered", "--quiet",
                *flags(
                    slots=slots, memory=memory, devices=devices, sharing=sharing, mode=mode, timeout=seconds(timeout), attempts=attempts,
                    python=python or sys.executable, pass_env=[*words(pass_env), "PYTHONPATH"],
                ),
            ],
            fed=True, environ=dict(os.environ, PYTHONPATH=os.pathsep.join(functions.paths())),
        )
        self._reader = threading.Thread(target=_read, args=(weakref.ref(self), self._command.stdout), daemon=True)
        self._reader.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future:
        """Run fn(*args, **kwargs) in the next free slot."""
        item = remote.pack(self._name(fn), _dumps((args, kwargs)))
        line = json.dumps(item).encode() + b"\n"
        future: concurrent.futures.Future = concurrent.futures.Future()
        future.set_running_or_notify_cancel()
        with self._writing:
            if self._closed:
                raise RuntimeError("the executor is shut down")
            self._pending[self._count] = future
            self._count += 1
            try:
                self._command.stdin.write(line)
                self._command.stdin.flush()
            except OSError:
                pass  # the reader fails every future, with what the command said
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls. wait waits for those that run; cancel_futures ends them."""
        with self._writing:
            self._closed = True
            try:
                self._command.stdin.close()
            except OSError:
                pass
        if cancel_futures:
            self._command.end()
        if wait:
            self._reader.join()
            self._command.end()
            for folder in self._made:
                shutil.rmtree(folder, ignore_errors=True)

    def _name(self, fn: Callable[..., Any]) -> str:
        try:
            return self._names[fn]
        except (KeyError, TypeError):
            pass
        named = functions.name(fn, functions.state())
        if named.made is not None:
            self._made.add(os.path.dirname(named.made))
        try:
            self._names[fn] = named.task
        except TypeError:
            pass
        return named.task

    def _take(self, row: dict) -> None:
        future = self._pending.pop(row["index"])
        if "fault" in row:
            future.set_exception(Fault(row["fault"]))
            return
        try:
            value = remote.unpack(row["value"])
        except BaseException as error:
            future.set_exception(error)
            return
        future.set_result(value)

    def _fail(self) -> None:
        with self._writing:
            self._closed = True
            left, self._pending = self._pending, {}
        if not left:
            return
        why = self._command.failure()
        for future in left.values():
            future.set_exception(why)


def _read(executor: "weakref.ref[Executor]", results: IO[bytes]) -> None:
    """Give each future its result. It holds the executor no longer than for that."""
    try:
        for line in results:
            owner = executor()
            if owner is None:
                return
            owner._take(json.loads(line))
            del owner
    except ValueError:
        pass  # the executor has closed it
    owner = executor()
    if owner is not None:
        owner._fail()


def _dumps(arguments: tuple) -> bytes:
    try:
        import cloudpickle as pickler
    except ImportError:
        pickler = pickle
    try:
        return pickler.dumps(arguments, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise TypeError(f"the arguments cannot be pickled: {error}") from error

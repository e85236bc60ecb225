"""concurrent.futures on slots."""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import itertools
import json
import logging
import os
import pickle
import queue
import shutil
import sys
import tempfile
import threading
import weakref
from typing import Any, Callable, Iterable, Optional, Sequence

from ..process import remote, typed
from ..process.fault import describe
from . import function as functions
from .command import Command, unless_forked
from .fault import Broken, Fault, RemoteTraceback, unreadable
from .options import Exceptions, Memory, Words, words
from .values import loads

_log = logging.getLogger("gpumux")


class Executor(concurrent.futures.Executor):
    """Runs calls in slots on this machine. What one raises, its future raises, or a Fault where its process ended.

    Slots, budgets, faults and retries are those of gpumux.map; arguments and results are pickled. max_workers is another name of slots.
    initializer(*initargs) runs in each process before its first call; where it raises, the executor is broken. An executor that is
    collected, and a program that ends, finish what was submitted; what a killed one left is lost. Functions of notebooks, lambdas and
    inner functions need cloudpickle.
    """

    def __init__(
        self,
        slots: Optional[int] = None,
        *,
        max_workers: Optional[int] = None,
        initializer: Optional[Callable[..., Any]] = None,
        initargs: Iterable[Any] = (),
        memory: Optional[Memory] = None,
        devices: Optional[Words] = None,
        sharing: Optional[str] = None,
        mode: Optional[str] = None,
        timeout: Optional[float] = None,
        start_timeout: Optional[float] = None,
        attempts: Optional[int] = None,
        retry_on: Optional[Exceptions] = None,
        python: Optional[str] = None,
        gpus_per_slot: Optional[int] = None,
        pass_env: Sequence[str] = (),
    ) -> None:
        if slots is not None and max_workers is not None:
            raise TypeError(f"slots={slots!r} and max_workers={max_workers!r} are one option; give one of them")
        options = dict(
            slots=max_workers if slots is None else slots, memory=memory, devices=devices, sharing=sharing, mode=mode, timeout=timeout,
            start_timeout=start_timeout, attempts=attempts, retry_on=retry_on, python=python or sys.executable,
            gpus_per_slot=gpus_per_slot, pass_env=words(pass_env),
        )
        self._calls = calls = _Calls(options, initializer and (initializer, tuple(initargs)))
        self._folder, self._reader = calls.folder, calls.reader
        weakref.finalize(self, calls.close).atexit = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future:
        """Run fn(*args, **kwargs) in the next free slot, with fn and the arguments as they are now. It waits for nothing."""
        return self._calls.submit(fn, args, kwargs)

    def __repr__(self) -> str:
        return f"<gpumux.Executor: {len(self._calls.pending)} calls wait or run{', shut down' if self._calls.closed else ''}>"

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls. wait waits for those that were submitted; cancel_futures cancels those that have not begun."""
        self._calls.close()
        if cancel_futures:
            for future, _ in list(self._calls.pending.values()):
                future.cancel()
        while wait and self._reader.is_alive():
            self._reader.join(1)  # a signal that comes just before a wait does not end it, but is heard behind it

    def terminate_workers(self) -> None:
        """End the calls that run, and take no more. Futures that are not done raise an Error."""
        self._calls.terminate()
        self.shutdown()

    def __exit__(self, kind: Optional[type], *_: Any) -> None:
        """Wait for the calls; Ctrl-C in the block ends them."""
        if kind is KeyboardInterrupt:
            self._calls.terminate()
        self.shutdown()


class _Calls:
    """The calls of an executor, which may be gone before they are over.

    Two threads hold it: one writes calls, so that who submits, such as a callback of the other, never waits for the command; the other
    gives each future its result. However that one ends, every future has an end.
    """

    def __init__(self, options: dict, initializer: Optional[tuple]) -> None:
        self.closed = self._terminated = False
        # By their position in the command's input.
        self.pending: dict[int, tuple[Future, str]] = {}
        # Why the command takes no more calls, where nobody has asked for that.
        self._broken: Optional[Broken] = None
        # How many calls need a file with a function.
        self._files: dict[str, int] = {}
        self._count = 0
        self._numbers = itertools.count()
        # Held for what is below, and never while anything is waited for.
        self._state = threading.Lock()
        self._lines: "queue.SimpleQueue[Optional[bytes]]" = queue.SimpleQueue()
        self.folder = tempfile.mkdtemp(prefix="gpumux-")
        weakref.finalize(self, unless_forked, os.getpid(), shutil.rmtree, self.folder, ignore_errors=True)
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(functions.paths()), typed.VARIABLE: f" {functions.main()}"}
        passed = ["PYTHONPATH", typed.VARIABLE]
        if initializer is not None:
            environ[remote.INITIALIZER] = self._initializer(*initializer)
            passed.append(remote.INITIALIZER)
        self.command = Command(
            self, ["stream", remote.TARGET, "--unordered", "--quiet"], {**options, "pass_env": [*options["pass_env"], *passed]}, fed=True,
            environ=environ,
        )
        self._over = threading.Event()
        # When the program ends. Otherwise there is nothing to wait for: what holds this has ended.
        weakref.finalize(self, unless_forked, os.getpid(), _finish, self._lines, self._over)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        threading.Thread(target=self._write, daemon=True).start()

    def submit(self, fn: Callable[..., Any], args: tuple, kwargs: dict) -> "Future":
        future = Future(os.path.join(self.folder, str(next(self._numbers))))
        name, data, call = self._packed(fn, args, kwargs, future.raised)
        if not self.closed and not os.path.isdir(self.folder):
            self._fail(self._lost())
            self.command.process.terminate()
        with self._state:
            if self._broken is not None:
                raise self._broken
            if self.closed:
                raise RuntimeError("the executor is shut down")
            if data is not None:
                if name not in self._files:
                    _save(name, data)
                self._files[name] = self._files.get(name, 0) + 1
            self.pending[self._count] = future, name
            self._count += 1
            self._lines.put(call + b"\n")
        return future

    def close(self) -> None:
        """Take no more calls. Any thread may collect an executor, whatever it holds, so this takes no lock."""
        self.closed = True
        self._lines.put(None)

    def terminate(self) -> None:
        """End those that run."""
        self._terminated = True
        self.close()
        self.command.end()

    def _packed(self, fn: Any, args: tuple, kwargs: dict, raised: str) -> tuple[str, Optional[bytes], bytes]:
        """The task of a function, or the file with it as it is now and what goes there, and a call of it. The same pickle is the same
        file, which a slot loads once."""
        named = functions.importable(fn)
        if named is not None:
            name, data = named.task, None
        else:
            data = remote.by_value(functions.paths(), functions.need_cloudpickle(fn).dumps(fn, pickle.HIGHEST_PROTOCOL))
            name = os.path.join(self.folder, f"{hashlib.sha256(data).hexdigest()}.pickle")
        arguments = _dumps((args, kwargs), data is None and getattr(fn, "__module__", None) == "__main__")
        return name, data, json.dumps(remote.pack(name, arguments, raised)).encode()

    def _initializer(self, fn: Callable[..., Any], args: tuple) -> str:
        """The file with the call that begins each process."""
        name, data, call = self._packed(fn, args, {}, "")
        if data is not None:
            _save(name, data)
        path = os.path.join(self.folder, "initializer")
        _save(path, call)
        return path

    def _lost(self) -> Broken:
        return Broken(f"the executor's folder {self.folder} is gone, and what its calls need with it; make a new executor")

    def _write(self) -> None:
        """Hand lines to the command until there are no more."""
        to = self.command.stdin
        assert to is not None
        with contextlib.suppress(OSError, ValueError):  # the command has ended, and the reader knows why
            while (line := self._lines.get()) is not None:
                to.write(line)
                if self._lines.empty():
                    to.flush()
            to.close()

    def _read(self) -> None:
        """Give each future its result, until there are no more."""
        try:
            for line in self.command.stdout:
                self._take(json.loads(line))
        except BaseException:
            # The folder is gone, or it has ended within a line, or terminate_workers has closed this.
            self.command.process.terminate()
        finally:
            self._end()

    def _take(self, row: dict) -> None:
        index = row["index"]
        if self._broken is not None:
            return
        future, name = self.pending[index]
        with contextlib.suppress(FileExistsError):
            os.symlink(remote.BEGUN, future.mark)
        cancelled = remote.marked(future.mark) == remote.CANCELLED or not future.set_running_or_notify_cancel()
        os.remove(future.mark)  # and yet it cannot be cancelled any more
        with self._state:
            del self.pending[index]
            if name in self._files:
                self._files[name] -= 1
                if self._files[name] == 0:
                    del self._files[name]
                    os.remove(name)
        if not cancelled:
            _settle(future, *_outcome(row, future.raised))

    def _end(self) -> None:
        """Fail what is left, and leave nothing behind."""
        try:
            if self._terminated:
                self._fail(Broken("the call was ended by terminate_workers, or by Ctrl-C in the executor's `with` block"))
            else:
                self._fail(Broken(str(self.command.failure())) if os.path.isdir(self.folder) else self._lost())
            self._lines.put(None)
            self.command.end()
            shutil.rmtree(self.folder, ignore_errors=True)
        finally:
            self._over.set()

    def _fail(self, broken: Broken) -> None:
        """End all futures, and take no more calls."""
        with self._state:
            left, self.pending = self.pending, {}
            if left or not self.closed:
                self.closed, self._broken = True, broken
        for future, _ in left.values():
            _settle(future, None, broken)


class Future(concurrent.futures.Future):
    """A call. Whoever makes its mark first decides: a slot that begins it, or who cancels it."""

    def __init__(self, raised: str) -> None:
        """A slot writes the exception of the call to raised."""
        super().__init__()
        self.raised, self.mark = raised, remote.mark(raised)

    def running(self) -> bool:
        return not self.done() and remote.marked(self.mark) == remote.BEGUN

    def cancel(self) -> bool:
        if not self.done():
            try:
                os.symlink(remote.CANCELLED, self.mark)
                if super().cancel():
                    self.set_running_or_notify_cancel()
                else:  # it was done just now
                    os.remove(self.mark)
            except OSError:
                pass  # it has begun, or its executor is gone
        return self.cancelled()

    def __repr__(self) -> str:
        return super().__repr__().replace("state=pending", "state=running") if self.running() else super().__repr__()


def _finish(lines: "queue.SimpleQueue[Optional[bytes]]", over: threading.Event) -> None:
    """Let the calls that were submitted finish, unless Ctrl-C says otherwise, or has ended the program."""
    lines.put(None)
    if getattr(sys, "last_type", None) is not KeyboardInterrupt:
        with contextlib.suppress(KeyboardInterrupt):
            while not over.wait(1):  # as in shutdown
                pass


def _save(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)


def _settle(future: concurrent.futures.Future, value: Any, error: Optional[BaseException]) -> None:
    """End a future, whatever its callbacks do."""
    try:
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
    except concurrent.futures.InvalidStateError:
        pass  # it is cancelled
    except BaseException:
        _log.exception("a callback of %r raised", future)


def _outcome(row: dict, path: str) -> tuple[Any, Optional[BaseException]]:
    """What a call returned or raised. Unpickling runs code of the types, which may raise anything."""
    try:
        if "fault" in row:
            return None, _exception(row["fault"], path)
        return loads(remote.unpack(row["value"])), None
    except BaseException as error:
        return None, unreadable("the result of the call", error)


def _exception(fields: dict, path: str) -> Exception:
    """What a call raised, as the slot left it at path, with the fault as its cause. The fault itself where the call did not end by
    an exception, or by one that does not pickle."""
    if "class" not in fields:
        return Fault(fields)
    try:
        with open(path, "rb") as file:
            raised = loads(file.read())
        os.remove(path)
    except FileNotFoundError:
        return Fault(fields)
    except BaseException as error:
        said = describe(error)
        raised = f"the exception cannot be unpickled here: {said['class']}: {said['message']}"
    if isinstance(raised, Exception):
        # Its own attributes may be frozen.
        BaseException.__dict__["__cause__"].__set__(raised, RemoteTraceback(fields))
        return raised
    return Fault({**fields, "hint": "; ".join(filter(None, [fields.get("hint"), f"it is raised as a Fault, since {raised}"]))})


def _dumps(arguments: tuple, imports: bool) -> bytes:
    """arguments pickled. imports is whether slots import the program's own module."""
    try:
        data = pickle.dumps(arguments, pickle.HIGHEST_PROTOCOL)
        if functions.known(data, imports):
            return data
    except Exception:
        pass
    try:
        import cloudpickle
    except ImportError:
        cloudpickle = pickle
    try:
        return cloudpickle.dumps(arguments, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise TypeError(f"the arguments cannot be pickled: {error}") from error

"""concurrent.futures on slots."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import hashlib
import json
import os
import pickle
import shutil
import sys
import tempfile
import threading
import weakref
from typing import IO, Any, Callable, Optional, Sequence

from .. import remote, typed
from . import function as functions
from .command import Command
from .fault import Fault, RemoteTraceback
from .options import Memory, Words, words
from .values import loads


class Executor(concurrent.futures.Executor):
    """Runs calls in slots on this machine. What one raises, its future raises, or a Fault where its process ended.

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
        start_timeout: Optional[float] = None,
        attempts: Optional[int] = None,
        python: Optional[str] = None,
        visible_devices: Optional[str] = None,
        gpus_per_slot: Optional[int] = None,
        pass_env: Sequence[str] = (),
    ) -> None:
        # Held while a call is written. What the reader needs is not under it: the command may wait for the reader.
        self._writing = threading.Lock()
        self._pending: dict[int, tuple[Future, str]] = {}
        # How many calls need a file with a function, and the functions of calls that are over.
        self._files: dict[str, int] = {}
        self._over: "collections.deque[str]" = collections.deque()
        self._folder = tempfile.mkdtemp(prefix="gpumux-")
        self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._count, self._closed = 0, False
        # Why the command ended by itself.
        self._why: Optional[Exception] = None
        self._command = Command(
            self,
            ["stream", remote.TARGET, "--unordered", "--quiet"],
            dict(
                slots=slots, memory=memory, devices=devices, sharing=sharing, mode=mode, timeout=timeout, start_timeout=start_timeout,
                attempts=attempts, python=python or sys.executable, visible_devices=visible_devices, gpus_per_slot=gpus_per_slot,
                pass_env=[*words(pass_env), "PYTHONPATH", typed.VARIABLE],
            ),
            fed=True, environ={**os.environ, "PYTHONPATH": os.pathsep.join(functions.paths()), typed.VARIABLE: f" {functions.main()}"},
        )
        self._reader = threading.Thread(target=_read, args=(weakref.ref(self), self._command.stdout), daemon=True)
        self._reader.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future:
        """Run fn(*args, **kwargs) in the next free slot, with fn and the arguments as they are now."""
        with self._writing:
            if self._why is not None:
                raise self._why
            if self._closed:
                raise RuntimeError("the executor is shut down")
            name = self._name(fn)
            imports = name not in self._files and getattr(fn, "__module__", None) == "__main__"
            item = remote.pack(name, _dumps((args, kwargs), imports), self._raised(self._count))
            future = Future(remote.mark(item["raised"]))
            self._pending[self._count] = future, name
            self._count_files(name)
            self._count += 1
            try:
                self._command.stdin.write(json.dumps(item).encode() + b"\n")
                self._command.stdin.flush()
            except OSError:
                pass  # the reader fails every future, with what the command said
        return future

    def __repr__(self) -> str:
        return f"<gpumux.Executor: {len(self._pending)} calls wait or run{', shut down' if self._closed else ''}>"

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls. wait waits for those that were submitted; cancel_futures cancels those that have not begun."""
        with self._writing:
            self._closed = True
            try:
                self._command.stdin.close()
            except OSError:
                pass
        if cancel_futures:
            for future, _ in list(self._pending.values()):
                future.cancel()
        if wait:
            self._reader.join()
            self._command.end()
            self._remove()

    def terminate_workers(self) -> None:
        """End the calls that run, and take no more. Futures that are not done raise an Error."""
        self._closed = True
        self._command.end()
        self.shutdown()

    def _name(self, fn: Any) -> str:
        """The task of a function, or the file with it as it is now. The same pickle is the same file, which a slot loads once."""
        named = functions.importable(fn)
        if named is not None:
            return named.task
        data = remote.by_value(functions.paths(), functions.need_cloudpickle(fn).dumps(fn, pickle.HIGHEST_PROTOCOL))
        path = os.path.join(self._folder, f"{hashlib.sha256(data).hexdigest()}.pickle")
        if path not in self._files:
            with open(path, "wb") as file:
                file.write(data)
            self._files[path] = 0
        return path

    def _count_files(self, name: str) -> None:
        """Count a call of name, and remove the files that no call needs any more."""
        if name in self._files:
            self._files[name] += 1
        while self._over:
            over = self._over.popleft()
            if over in self._files:
                self._files[over] -= 1
                if self._files[over] == 0:
                    del self._files[over]
                    os.remove(over)

    def _raised(self, index: int) -> str:
        """The file that a slot writes the exception of a call to."""
        return os.path.join(self._folder, str(index))

    def _take(self, row: dict) -> None:
        future, name = self._pending.pop(row["index"])
        self._over.append(name)
        with contextlib.suppress(FileExistsError):
            os.symlink(remote.BEGUN, future.mark)
        cancelled = remote.marked(future.mark) == remote.CANCELLED or not future.set_running_or_notify_cancel()
        os.remove(future.mark)  # and yet it cannot be cancelled any more
        if cancelled:
            return
        if "fault" in row:
            future.set_exception(_exception(row["fault"], self._raised(row["index"])))
            return
        try:
            value = loads(remote.unpack(row["value"]))
        except BaseException as error:
            future.set_exception(error)
            return
        future.set_result(value)

    def _fail(self) -> None:
        with self._writing:
            left, self._pending = self._pending, {}
            why = self._command.failure() if left or not self._closed else None
            if not self._closed:
                self._closed, self._why = True, why
        for future, _ in left.values():
            with contextlib.suppress(concurrent.futures.InvalidStateError):  # it is cancelled
                future.set_exception(why)


class Future(concurrent.futures.Future):
    """A call. Whoever makes its mark first decides: a slot that begins it, or who cancels it."""

    def __init__(self, mark: str) -> None:
        super().__init__()
        self.mark = mark

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
    except Exception as error:
        raised = f"the exception cannot be unpickled here: {type(error).__name__}: {error}"
    if isinstance(raised, Exception):
        raised.__cause__ = RemoteTraceback(fields)
        return raised
    return Fault({**fields, "hint": "; ".join(filter(None, [fields.get("hint"), f"it is raised as a Fault, since {raised}"]))})


def _dumps(arguments: tuple, imports: bool) -> bytes:
    """arguments pickled. imports is whether slots import the program's own module."""
    try:
        data = pickle.dumps(arguments, pickle.HIGHEST_PROTOCOL)
        if imports or b"__main__" not in data:
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

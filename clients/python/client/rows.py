"""Runs the command and gives its rows as results."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import threading
import weakref
from typing import Any, Callable, Iterable, Iterator, Optional, Sequence

from . import binary, progress
from .fault import BadInput, Error, Fault, MapFailed, Result, Unavailable

_log = logging.getLogger("gpumux")
# How long the command may take to end its processes before it is killed; its own sweeper ends them then.
_GRACE = 20.0
# Maps of this program that may still run, by their command.
_open: "weakref.WeakValueDictionary[tuple, Rows]" = weakref.WeakValueDictionary()


class Rows:
    """The results of a map as they come, for `for` and `async for`.

    close() stops the map, as does leaving a `with` block, and the end of the program. What has finished is kept: the same map goes on.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        feed: Optional[Iterable[bytes]],
        *,
        environ: Optional[dict] = None,
        total: Optional[int] = None,
        show: Optional[bool] = None,
        raise_faults: bool = False,
        done: Callable[[], None] = lambda: None,
    ) -> None:
        self._key = tuple(arguments)
        before = _open.pop(self._key, None)
        if before is not None:
            # A cell that was interrupted and runs again: two commands must not have one map.
            before.close()
        self._raise_faults, self._done, self._seen, self._faults = raise_faults, done, 0, 0
        self._said: list[str] = []
        self._error: Optional[BaseException] = None
        self._fed, self._total = 0, total
        self._process = subprocess.Popen(
            [binary.find(), *arguments],
            stdin=subprocess.PIPE if feed is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ, bufsize=1 << 16, start_new_session=True,
        )
        # Not a method: what the finalizer holds must not keep this alive.
        self._end = weakref.finalize(self, stop, self._process)
        self._threads = [threading.Thread(target=listen, args=(self._process, self._said), daemon=True)]
        if feed is not None:
            self._threads.append(threading.Thread(target=self._write, args=(feed,), daemon=True))
        for thread in self._threads:
            thread.start()
        self._bar = progress.bar(total, show)
        _open[self._key] = self

    def _write(self, feed: Iterable[bytes]) -> None:
        to = self._process.stdin
        assert to is not None
        try:
            for line in feed:
                to.write(line)
                self._fed += 1
            self._total = self._fed
            to.close()
        except BrokenPipeError:
            pass  # the command has ended and says why
        except BaseException as error:
            self._error = error
            # Without its end the input is not whole, and nothing of it may run.
            self._process.terminate()

    def __iter__(self) -> Iterator[Result]:
        return self

    def __next__(self) -> Result:
        try:
            assert self._process.stdout is not None
            line = b"" if self._process.stdout.closed else self._process.stdout.readline()
            if not line:
                self._finish()
                raise StopIteration
            row = json.loads(line)
        except StopIteration:
            raise
        except BaseException:
            self.close()
            raise
        self._seen += 1
        self._bar.update(1)
        fault = row.get("fault")
        if fault is None:
            return Result(row["index"], row.get("value"))
        self._faults += 1
        found = Fault(fault)
        if self._raise_faults:
            self.close()
            raise found
        return Result(row["index"], None, found)

    def _finish(self) -> None:
        """Read the command's end, which has given all rows that it has."""
        if not self._end.alive:
            return
        code = self._process.wait()
        self.close()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if code == 0 or code == 1 and self._seen == self._total and self._faults > 0:
            self._done()
            return
        said = "\n".join(self._said) or f"gpumux ended with {code} and said nothing"
        raise {1: MapFailed, 2: BadInput, 3: Unavailable}.get(code, Error)(said)

    def close(self) -> None:
        """Stop the map, if it still runs, and wait until nothing of it is left."""
        self._end()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        self._bar.close()
        if _open.get(self._key) is self:
            del _open[self._key]

    def __enter__(self) -> "Rows":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __aiter__(self) -> "Rows":
        return self

    async def __anext__(self) -> Result:
        try:
            result = await asyncio.get_running_loop().run_in_executor(None, next, self, None)
        except asyncio.CancelledError:
            self._end()
            raise
        if result is None:
            raise StopAsyncIteration
        return result


def listen(process: subprocess.Popen, said: list) -> None:
    """Log what the command says on standard error, and keep the end of it."""
    assert process.stderr is not None
    with process.stderr as said_now:
        for raw in said_now:
            line = raw.decode(errors="replace").rstrip("\n")
            _log.info("%s", line)
            said.append(line)
            del said[:-200]


def stop(process: subprocess.Popen) -> None:
    """End the command and wait until nothing of it is left."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    assert process.stdout is not None
    process.stdout.close()
    if process.stdin is not None:
        try:
            process.stdin.close()
        except OSError:
            pass

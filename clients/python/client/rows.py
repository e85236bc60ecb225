"""Runs the command and gives its rows as results."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import weakref
from typing import Any, Callable, Iterable, Iterator, Optional, Sequence

from ..item import numbers
from . import progress
from .command import Command
from .fault import ITEMS_FAILED, Fault, Result

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
        self._key: tuple = tuple(arguments)
        self._raise_faults, self._done = raise_faults, done
        self._error: Optional[BaseException] = None
        if feed is None:
            self._displace()
        self._command = Command(self, [*arguments, "--exact"], fed=feed is not None, environ=environ)
        self._feeder = threading.Thread(target=self._write, args=(feed or (),), daemon=True)
        self._bar = progress.bar(total, show)
        if feed is not None:
            self._feeder.start()

    def _displace(self) -> None:
        """Close the same map of this program, as of a cell that was interrupted and runs again: two commands must not have one map."""
        before, _open[self._key] = _open.get(self._key), self
        if before is not None:
            before.close()

    def _write(self, feed: Iterable[bytes]) -> None:
        to = self._command.stdin
        assert to is not None
        content = hashlib.sha256()
        try:
            for line in feed:
                to.write(line)
                content.update(line)
            # Which map it is, the items say as well. The command begins when it has all of them.
            self._key += (content.digest(),)
            self._displace()
            to.close()
        except BrokenPipeError:
            pass  # the command has ended and says why
        except BaseException as error:
            self._error = error
            # Without its end the input is not whole, and nothing of it may run.
            self._command.process.terminate()

    def __iter__(self) -> Iterator[Result]:
        return self

    def __next__(self) -> Result:
        try:
            out = self._command.stdout
            line = b"" if out.closed else out.readline()
            if not line:
                self._finish()
                raise StopIteration
            row = json.loads(numbers(line.decode()))
        except StopIteration:
            raise
        except BaseException:
            self.close()
            raise
        self._bar.update(1)
        fault, label = row.get("fault"), (row.get("key"), row.get("item"), row.get("files", ()))
        if fault is None:
            return Result(row["index"], row.get("value"), None, *label)
        found = Fault(fault)
        if self._raise_faults:
            self.close()
            raise found
        return Result(row["index"], None, found, *label)

    def _finish(self) -> None:
        """Read the command's end, which has given all rows that it has."""
        if not self._command.running:
            return
        code = self._command.process.wait()
        self.close()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if code in (0, ITEMS_FAILED):
            self._done()
            return
        raise self._command.failure()

    def close(self) -> None:
        """Stop the map, if it still runs, and wait until nothing of it is left."""
        self._command.end()
        if self._feeder.is_alive():
            self._feeder.join()
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
            self._command.end()
            raise
        if result is None:
            raise StopAsyncIteration
        return result

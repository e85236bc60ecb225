"""Runs the command and gives its rows as results."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import weakref
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Optional, Sequence

from ..process.item import numbers
from . import progress, tables
from .command import Command
from .fault import ITEMS_FAILED, Error, Fault, Result, raised, unreadable

# Maps of this program on this machine that may still run, by their command.
_open: "weakref.WeakValueDictionary[tuple, Rows]" = weakref.WeakValueDictionary()
# Held while one takes the place of another.
_opening = threading.RLock()


class Feed(NamedTuple):
    """The items of a map, for the command's standard input."""

    lines: Iterable[bytes]
    total: Optional[int] = None
    """How many there are, where that is known before."""
    ahead: Optional[int] = None
    """Of a stream: the most that are read before their results were given."""


class Rows:
    """The results of a map as they come, for `for` and `async for`.

    close() stops the map, as does leaving a `with` block, and the end of the program. What has finished is kept: the same map goes on.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        options: dict,
        feed: Optional[Feed] = None,
        *,
        environ: Optional[dict] = None,
        total: Optional[int] = None,
        show: Optional[bool] = None,
        show_output: bool = False,
        raise_faults: bool = False,
        value: Callable[[Any], Any] = lambda value: value,
        item: Callable[[Any], Any] = lambda item: item,
        done: Callable[[], None] = lambda: None,
    ) -> None:
        """value and item read what the command gives as such, done runs when all results were given."""
        self._key: tuple = (*arguments, repr(options))
        self._options = options
        self._raise_faults, self._show_output, self._value, self._item, self._done = raise_faults, show_output, value, item, done
        # What is left out of them, the command finds.
        self._total = None if options.get("skip") else total if feed is None else feed.total
        self._given = 0
        self._faults: list[Result] = []
        self._error: Optional[BaseException] = None
        # Whether its state is here, where two commands must not have one map.
        self._here = "--local" in arguments
        self._ahead = threading.Semaphore(feed.ahead) if feed is not None and feed.ahead is not None else None
        self._bar = progress.Bar(self._total, show)
        with _opening:
            if feed is None:
                self._displace()
            self._command = Command(self, [*arguments, "--exact"], options, fed=feed is not None, environ=environ, heard=self._bar.hear)
            if feed is None:
                _open[self._key] = self
        if feed is not None:
            self._feeder = threading.Thread(target=self._write, args=(feed.lines,), daemon=True)
            self._feeder.start()

    def _displace(self) -> None:
        """Close the same map of this program, as of a cell that was interrupted and runs again: two commands must not have one map."""
        before = _open.get(self._key) if self._here else None
        if before is not None and before._command.running:
            before._error = Error(
                "this map was started again while its results were read, and the later call has them now; read one to its end before "
                "the other starts, or give each an id="
            )
            before.close()

    def _write(self, lines: Iterable[bytes]) -> None:
        to = self._command.stdin
        assert to is not None
        content = hashlib.sha256()
        count = 0
        try:
            for line in self._bounded(lines):
                to.write(line)
                count += 1
                if self._ahead is None:
                    content.update(line)
                else:
                    to.flush()
            with _opening:
                if not self._command.running:
                    return
                self._total = None if self._options.get("skip") else count
                if self._ahead is None:
                    # Which map it is, the items say as well. The command begins when it has all of them.
                    self._key += (content.digest(),)
                    self._displace()
                    _open[self._key] = self
                to.close()
        except BaseException as error:
            if self._error is not error:
                return  # the command has ended and says why, or nobody wants it any more
            if self._ahead is None:
                # Without its end the input is not whole, and nothing of it may run.
                self._command.process.terminate()
            else:
                to.close()

    def _bounded(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        each = iter(lines)
        while self._ahead is None or self._ahead.acquire() and self._command.running:
            try:
                line = next(each)
            except StopIteration:
                return
            except BaseException as error:
                if self._command.running:
                    self._error = error
                raise
            yield line

    def __iter__(self) -> Iterator[Result]:
        return self

    def __next__(self) -> Result:
        try:
            line = self._line()
            if not line:
                self._finish()
                raise StopIteration
            result = self._read(json.loads(numbers(line.decode())))
        except StopIteration:
            raise
        except BaseException:
            self.close()
            raise
        self._given += 1
        self._bar.give()
        if self._show_output and result.output:
            self._bar.print(result.output)
        if self._ahead is not None:
            self._ahead.release()
        if result.fault is not None:
            if self._raise_faults:
                self.close()
                raise raised(result)
            self._faults.append(result)
        return result

    def _line(self) -> bytes:
        """The next row, or nothing after the last one that is whole."""
        try:
            line = self._command.stdout.readline()
        except ValueError:
            return b""  # it is closed
        return line if line.endswith(b"\n") else b""

    def _read(self, row: dict) -> Result:
        fault = Fault(row["fault"], self._options) if "fault" in row else None
        read: dict[str, Any] = {"item": None, "value": None}
        for name, reader in (("item", self._item), ("value", self._value)):
            try:
                if name == "item" or fault is None:
                    read[name] = reader(row.get(name))
            except (Exception, SystemExit) as error:
                fault = fault or unreadable(f"the {name} of index {row['index']}", error)
        return Result(row["index"], read["value"], fault, row.get("key"), read["item"], row.get("files", ()), row.get("output", ""))

    def _finish(self) -> None:
        """Read the command's end, which has given all rows that it has."""
        ended = self._command.running
        if ended:
            code = self._command.process.wait()
            self.close()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if not ended:
            return  # it was closed before its end
        if code in (0, ITEMS_FAILED):
            self._total = self._given if self._total is None else self._total
            self._done()
            return
        raise self._command.failure()

    def close(self) -> None:
        """Stop the map, if it still runs, and wait until nothing of it is left."""
        self._command.end()
        if self._ahead is not None:
            self._ahead.release()  # the feeder ends, once its generator gives the next item
        self._bar.close()
        with _opening:
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

    def __len__(self) -> int:
        """How many items the map has. Raises TypeError until all of a generator or of a source were read."""
        if self._total is None:
            raise TypeError("how many items there are is not known yet")
        return self._total

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        of = "" if self._total is None else f" of {self._total:,}"
        failed = f", {len(self._faults):,} failed" if self._faults else ""
        return f"<gpumux.Rows: {self._given:,}{of} results given{failed}{', runs' if self._command.running else ''}>"

    def faults(self) -> list[Result]:
        """The results that have a fault, of all items: it reads those that were not given yet."""
        for _ in self:
            pass
        return self._faults

    def to_pandas(self) -> Any:
        """The results that were not given yet as a pandas.DataFrame: a row per item, named by its index.

        Its columns are a field each where all values are dicts, else "value", and "fault" and "fault_message"; also "key" and "item"
        where the map has them.
        """
        return tables.to_pandas(list(self))

    def to_arrow(self) -> Any:
        """The results that were not given yet as a pyarrow.Table with the columns of to_pandas, and "index"."""
        return tables.to_arrow(list(self))

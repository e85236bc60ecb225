"""What an item or a map came to."""

from __future__ import annotations

import re
import reprlib
from concurrent.futures import BrokenExecutor
from typing import Any, NamedTuple, Optional, Sequence

from ..process.fault import describe
from .options import FIELDS, text_of
from .progress import FINISHED


class Fault(Exception):
    """Why an item failed: what happened, where, and what to do next."""

    def __init__(self, fields: dict, options: dict = {}) -> None:
        super().__init__(fields)
        self.kind: str = fields.get("kind", "")
        """device_oom, budget, host_oom, crash, timeout, device_lost, task_error, bad_input or canceled."""
        self.message: str = fields.get("message", "")
        """What happened in one line, in the framework's own words where there are any."""
        self.raised: Optional[str] = fields.get("class")
        """The name of the exception's class, such as ValueError or torch.OutOfMemoryError."""
        self.traceback: Optional[str] = fields.get("traceback")
        self.hint: Optional[str] = fields.get("hint") and in_python(fields["hint"], options)
        self.attempts: int = fields.get("attempts", 0)
        """How often the item was tried."""
        self.index: Optional[int] = None
        """The item's position, where a map raises the fault."""
        self.fields: dict = fields
        """All that is known, as in the results of the command line."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.kind}: {self._said():.200}>"

    def __str__(self) -> str:
        where = "" if self.index is None else f"item {self.index}: "
        text = f"{where}{self.kind}: {self._said()}"
        return f"{text}; {self.hint}" if self.hint else text

    def _said(self) -> str:
        return self.message if self.raised in (None, "", self.message) else f"{self.raised}: {self.message}"


class RemoteTraceback(Fault):
    """The fault of a call, as the cause of the exception that the call raised."""

    def __str__(self) -> str:
        return f'{super().__str__()}\n"""\n{self.traceback}"""' if self.traceback else super().__str__()


def raised(result: Result) -> Fault:
    """The fault of a result, as a map raises it: with the item's position and, as its cause, the lines of the function."""
    fault = result.fault
    assert fault is not None
    fault.index, fault.__cause__ = result.index, fault.__cause__ or (RemoteTraceback(fault.fields) if fault.traceback else None)
    return fault


def unreadable(what: str, error: BaseException) -> Fault:
    """The fault of what a slot has pickled and its types do not unpickle here."""
    said = describe(error)
    fault = Fault({**said, "kind": "task_error", "attempts": 1, "message": f"{what} cannot be unpickled here: {said['class']}: {said['message']}"})
    fault.__cause__ = error
    return fault


class Result(NamedTuple):
    """What an item came to: a value, or a fault."""

    index: int
    """The item's position among the items."""
    value: Any = None
    fault: Optional[Fault] = None
    key: Any = None
    """The item's field that key= names."""
    item: Any = None
    """The item itself, with with_item=True."""
    files: Sequence[str] = ()
    """The names of the files that the item kept with gpumux.save."""
    output: str = ""
    """What the item printed, cut in the middle where it is long."""

    def __repr__(self) -> str:
        said = [f"index={self.index}", f"value={_short.repr(self.value)}" if self.fault is None else f"fault={self.fault!r}"]
        said += [f"{name}={_short.repr(value)}" for name, value in zip(self._fields[3:], self[3:]) if repr(value) not in _NOTHING]
        return f"Result({', '.join(said)})"


_NOTHING = "None", "()", "[]", "''"
_short = reprlib.Repr()
_short.maxstring = _short.maxother = 200


class Error(RuntimeError):
    """A map that did not run, or not to its end. Its text is what the command said."""


class BadInput(Error, ValueError):
    """What was asked for cannot be done, or the function's file was edited while the map ran; what has finished is kept."""


class Unavailable(Error):
    """Something needed could not be reached or started."""


class MapFailed(Error):
    """The map failed as a whole; the results of the items that finished are kept."""


class Broken(Error, BrokenExecutor):
    """An Executor takes no more calls, and nobody has asked for that."""


ITEMS_FAILED = 1
"""The command's exit code when items failed and nothing else did."""


def failure(code: int, said: str, options: dict) -> Error:
    """What the command's exit code means. said is what it wrote, options are those it was given."""
    lines = [line for line in said.splitlines() if not (FINISHED.match(line) or re.match("note: |see `gpumux .*--help`$", line))]
    return {2: BadInput, 3: Unavailable, 4: MapFailed}.get(code, Error)(in_python("\n".join(lines), options))


def in_python(text: str, options: dict) -> str:
    """What the command says, with flags as the options of Python: --memory lots as memory='lots'. Whole commands stay."""

    def option(match: re.Match) -> str:
        if match["flag"] is None:
            return match[0]
        name, word = "source" if match["flag"] == "in" else match["flag"].replace("-", "_"), match["word"] or ""
        value = options.get(name)
        if value is None:
            return f"{name}={word}"
        again = name == "arg" or word[1:].strip('"') in (str(value), text_of(name, value))
        return f"{name}={_short.repr(value)}{'' if again else word}"

    text = re.sub("(?m)^gpumux: | with --local", "", text)
    text = re.sub(r"--pass-env ([\w,]+)", lambda match: f"pass_env={match[1].split(',')}", text)
    if "memory" in options:
        # The pool is the call's own.
        text = re.sub(r"the pool memory: (\d\w*)", r'memory="\1"', text.replace(", or add a larger pool to the ladder", ""))
    text = re.sub(rf'invalid argument ({_QUOTED}) for "(?:-., )?(--[a-z-]+)" flag:', r"\2 \1:", text)
    text = re.sub(r'--option "?(\w+)=(\w+)"?', lambda match: f'{_NAMES.get(match[1], match[1])}="{match[2]}"', text)
    return re.sub(rf"`[^`]*`|(?m:^(?:sbatch: |Try \").*)|--(?P<flag>[a-z][a-z-]*)(?P<word> {_QUOTED}| [^\s:;,]+)?", option, text)


_NAMES = {field: name for name, field in FIELDS.items()}
_QUOTED = r'"(?:[^"\\]|\\.)*"'

"""What an item or a map came to."""

from __future__ import annotations

import re
from typing import Any, NamedTuple, Optional, Sequence


class Fault(Exception):
    """Why an item failed: what happened, where, and what to do next."""

    def __init__(self, fields: dict) -> None:
        super().__init__(fields)
        self.kind: str = fields.get("kind", "")
        """device_oom, budget, host_oom, crash, timeout, device_lost, task_error, bad_input, canceled or slot_lost."""
        self.message: str = fields.get("message", "")
        """What happened in one line, in the framework's own words where there are any."""
        self.raised: Optional[str] = fields.get("class")
        """The name of the exception's class, such as ValueError or torch.OutOfMemoryError."""
        self.traceback: Optional[str] = fields.get("traceback")
        self.hint: Optional[str] = fields.get("hint")
        self.attempts: int = fields.get("attempts", 0)
        """How often the item was tried."""
        self.fields: dict = fields
        """All that is known, as in the results of the command line."""

    def __str__(self) -> str:
        text = f"{self.kind}: {self.raised}: {self.message}" if self.raised else f"{self.kind}: {self.message}"
        return f"{text}; {self.hint}" if self.hint else text


class RemoteTraceback(Fault):
    """The fault of a call, as the cause of the exception that the call raised."""

    def __str__(self) -> str:
        return f'{super().__str__()}\n"""\n{self.traceback}"""' if self.traceback else super().__str__()


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


class Error(RuntimeError):
    """A map that did not run, or not to its end. Its text is what the command said."""


class BadInput(Error, ValueError):
    """What was asked for cannot be done; nothing was started."""


class Unavailable(Error):
    """Something needed could not be reached or started."""


class MapFailed(Error):
    """The map failed as a whole; the results of the items that finished are kept."""


ITEMS_FAILED = 1
"""The command's exit code when items failed and nothing else did."""


def failure(code: int, said: str) -> Error:
    """What the command's exit code means. Its flags become keywords, but not those of whole commands."""
    said = re.sub(r"`[^`]*`|--[a-z][a-z-]*", lambda m: m[0] if m[0][0] == "`" else m[0][2:].replace("-", "_") + "=", said)
    return {2: BadInput, 3: Unavailable, 4: MapFailed}.get(code, Error)(said)

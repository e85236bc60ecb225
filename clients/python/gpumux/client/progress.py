"""Shows how far a map is, where tqdm is installed."""

from __future__ import annotations

import importlib.util
import re
import sys
from typing import Any, Optional

# How the command says how many items have finished, and of how many.
FINISHED = re.compile(r"\d+%  ([\d,]+)/([\d,]+)(?:  |$)")


class Bar:
    """tqdm's bar of the items that have finished, in order or not, if show says so; None means in terminals and notebooks."""

    def __init__(self, total: Optional[int], show: Optional[bool]) -> None:
        self._tqdm: Any = None
        self._given = 0
        notebook = "ipykernel" in sys.modules
        if show is None:
            show = notebook or sys.stderr is not None and sys.stderr.isatty()
        if not show or importlib.util.find_spec("tqdm") is None:
            return
        if notebook and importlib.util.find_spec("ipywidgets") is not None:
            from tqdm.notebook import tqdm
        else:
            from tqdm import tqdm
        self._tqdm = tqdm(total=total, unit=" items")

    def give(self) -> None:
        """A result was given."""
        self._given += 1
        self._show(self._given)

    def hear(self, line: str) -> None:
        """The command said something."""
        found = FINISHED.match(line)
        if found and self._tqdm is not None:
            self._tqdm.total = int(found[2].replace(",", ""))
            self._show(int(found[1].replace(",", "")))

    def print(self, text: str) -> None:
        """Print text, above the bar."""
        text = text.rstrip("\n")
        if self._tqdm is None:
            print(text, flush=True)
        else:
            self._tqdm.write(text)

    def _show(self, finished: int) -> None:
        if self._tqdm is not None and finished > self._tqdm.n:
            self._tqdm.update(finished - self._tqdm.n)

    def close(self) -> None:
        if self._tqdm is not None:
            self._tqdm.close()

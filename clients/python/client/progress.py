"""Shows how far a map is, where tqdm is installed."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any, Optional


class _Nothing:
    def update(self, n: int) -> None: ...

    def close(self) -> None: ...


def bar(total: Optional[int], show: Optional[bool]) -> Any:
    """tqdm's bar if show says so; None means in terminals and notebooks."""
    notebook = "ipykernel" in sys.modules
    if show is None:
        show = notebook or sys.stderr is not None and sys.stderr.isatty()
    if not show or importlib.util.find_spec("tqdm") is None:
        return _Nothing()
    if notebook and importlib.util.find_spec("ipywidgets") is not None:
        from tqdm.notebook import tqdm
    else:
        from tqdm import tqdm
    return tqdm(total=total, unit=" items")

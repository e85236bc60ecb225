"""Files that the running item keeps: written below a folder of the worker, which stores them before it takes the item's result.

Owns that folder's part of one item. Never talks to the worker: the answer of the item names the files.
"""

from __future__ import annotations

import os
import shutil
from typing import Any

# As gpumux.CheckFileName, MaxFiles and MaxFileBytes have it.
_LONGEST, _MOST, _LARGEST = 200, 100, 16 << 30


def check(name: Any) -> str:
    """The name of a file. Raises ValueError where it is none."""
    if not isinstance(name, str):
        raise TypeError(f"gpumux.save({name!r}, …): the name is a str, such as \"plot.png\"")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        size = 0
    if size > _LONGEST:
        raise ValueError(f"gpumux.save({name[:40]!r}…): the name has {size} bytes; at most {_LONGEST} are allowed")
    wrong = any(c in "/\\" or ord(c) < 32 or 127 <= ord(c) < 160 for c in name)
    if not size or wrong or name in (".", "..") or name.endswith(".attrs") or "__0x" in name:
        raise ValueError(f"gpumux.save({name!r}, …): give a plain name such as \"plot.png\", without a folder")
    return name


class Files:
    """The files of the items that a caller runs, one item after the other."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        """Those of the item that runs, so far."""
        self._folder = ""

    def save(self, folder: str, name: str, data: Any) -> None:
        """Write a file of the item that runs, which has folder for its files; empty: it has none."""
        if not folder:
            raise RuntimeError(
                "gpumux.save: there is no place for files here. Items of a map keep them, in its last stage, where its results go to a store "
                "or, with `gpumux map --local`, to this machine; `gpumux stream` has none"
            )
        if name not in self.names and len(self.names) >= _MOST:
            raise ValueError(f"gpumux.save({name!r}, …): the item has {_MOST} files already; pack them into one, such as a .tar")
        self._folder = folder
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, name)
        unfinished = path + ".__0x"  # no file has such a name
        try:
            _write(unfinished, data)
            size = os.path.getsize(unfinished)
            if size > _LARGEST:
                raise ValueError(f"gpumux.save({name!r}, …): it has {size} bytes; at most {_LARGEST} are allowed")
            os.replace(unfinished, path)
        except BaseException:
            if os.path.lexists(unfinished):
                os.unlink(unfinished)
            raise
        self.names[name] = None

    def take(self) -> list[str]:
        """The names of the item's files, which are the worker's from now on."""
        names = list(self.names)
        self.names.clear()
        return names

    def drop(self) -> None:
        """Remove what the item has saved: its try failed."""
        if self.names:
            self.names.clear()
            shutil.rmtree(self._folder, ignore_errors=True)


def _write(path: str, data: Any) -> None:
    if isinstance(data, str):
        data = data.encode()
    if isinstance(data, os.PathLike):
        shutil.copyfile(data, path)
        return
    with open(path, "wb") as to:
        if not hasattr(data, "read"):
            to.write(data)
            return
        while True:
            piece = data.read(1 << 20)
            if not piece:
                return
            to.write(piece.encode() if isinstance(piece, str) else piece)

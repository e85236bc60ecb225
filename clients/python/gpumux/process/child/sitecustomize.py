"""Runs at the start of every Python that a task's process starts, such as those of torchrun and of multiprocessing's spawn.

Owns that they have the slot's limits too. Then it does what the environment's own sitecustomize does. It runs in Pythons of any
version, and does nothing in those that are too old.
"""

import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != _here]


def _limit():
    root = os.path.dirname(os.path.dirname(os.path.dirname(_here)))
    sys.path.insert(0, root)
    try:
        from gpumux.process import memory

        memory.cap(int(os.environ["GPUMUX_ROOM"]))
    finally:
        sys.path.remove(root)


if sys.version_info >= (3, 9) and "GPUMUX_ROOM" in os.environ:
    _limit()

_self = sys.modules.pop("sitecustomize")
try:
    import sitecustomize  # noqa: F401, the environment's own
except ImportError as error:
    if getattr(error, "name", "sitecustomize") != "sitecustomize":
        raise
finally:
    sys.modules.setdefault("sitecustomize", _self)

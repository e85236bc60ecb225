"""Names a function for the command: by its module, or by value."""

from __future__ import annotations

import base64
import functools
import hashlib
import inspect
import itertools
import logging
import os
import site
import sys
import types
from typing import Any, Callable, NamedTuple, Optional

from . import script
from .fault import BadInput

_log = logging.getLogger("gpumux")


class Named(NamedTuple):
    """A function as a task."""

    task: str
    """file.py:function or module:function."""
    path: Optional[str] = None
    """A folder that its module is imported from, where the task process does not look by itself."""
    made: Optional[str] = None
    """The file that was written for it."""


def name(function: Any, state: str) -> Named:
    """The task of a function. One that no import finds, such as a notebook's, is written to a file below state."""
    return importable(function) or _written(function, state)


def importable(function: Any) -> Optional[Named]:
    """The task of a function that a task process can import, else None."""
    if isinstance(function, str):
        return Named(function)
    if not callable(function):
        raise TypeError(f"{function!r} is no function; give one, or its name as 'file.py:function'")
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    qualified = getattr(function, "__qualname__", "")
    if module is None or "<" in qualified or found(module, qualified) is not function:
        return None
    file = getattr(module, "__file__", None)
    if module.__name__ == "__main__":
        if file is None or not _has(file, function, qualified):
            return None
        _tell_of_changes(file, function, qualified)
        spec = getattr(module, "__spec__", None)
        if spec is not None:
            # python -m: the module of a package
            return Named(f"{spec.name}:{qualified}", _root(spec.name, file))
        return Named(f"{os.path.abspath(file)}:{qualified}")
    if file is None or not file.endswith(".py"):
        return Named(f"{module.__name__}:{qualified}")
    if "." not in module.__name__ and not hasattr(module, "__path__") and not _installed(file):
        return Named(f"{os.path.abspath(file)}:{qualified}")
    return Named(f"{module.__name__}:{qualified}", None if _installed(file) else _root(module.__name__, file))


def main() -> str:
    """The name that the program's own module has in task processes."""
    module = sys.modules["__main__"]
    spec = getattr(module, "__spec__", None)
    if spec is not None:
        return spec.name
    return os.path.splitext(os.path.basename(getattr(module, "__file__", None) or ""))[0]


def state() -> str:
    """Where functions are written that no import finds."""
    root = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(root, "gpumux", "functions")


def known(data: bytes, imports: bool) -> bool:
    """Whether slots have the classes and functions of the program's own module that a pickle names; imports is whether they import it."""
    if b"__main__" not in data or not imports:
        return b"__main__" not in data
    own = vars(sys.modules["__main__"])
    kinds = [name.encode() for name in script.of(own["__file__"]).hidden if isinstance(own.get(name), (type, types.FunctionType))]
    return not any(b"\x8c%c%s" % (len(name), name) in data for name in kinds)


def paths() -> list[str]:
    """The folders of this program's own modules."""
    return [os.path.abspath(path) for path in sys.path if os.path.isdir(path or ".") and not _installed(os.path.join(path, "x"))]


def found(module: types.ModuleType, qualified: str) -> Any:
    """What module has under a qualified name, else None."""
    value: Any = module
    for part in qualified.split("."):
        value = getattr(value, part, None)
    return value


def _installed(file: str) -> bool:
    return file.startswith(_library())


@functools.lru_cache(maxsize=None)
def _library() -> tuple[str, ...]:
    """The folders of Python's own modules and of installed ones."""
    folders = [*site.getsitepackages(), site.getusersitepackages(), os.path.dirname(os.__file__)]
    return tuple(os.path.join(folder, "") for folder in folders)


def _root(module: str, file: str) -> str:
    """The folder that a package lies in."""
    levels = module.count(".") + (os.path.basename(file) == "__init__.py")
    folder = os.path.dirname(os.path.abspath(file))
    for _ in range(levels):
        folder = os.path.dirname(folder)
    return folder


def _has(file: str, function: Callable[..., Any], qualified: str) -> bool:
    """Whether an import of the script has the function with what it uses. What the script runs now is guarded then, and the function
    is not."""
    try:
        its = script.of(file)
    except (OSError, SyntaxError):
        return False
    frame, line = inspect.currentframe(), 0
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__":
            line = frame.f_lineno
        frame = frame.f_back
    if not any(start <= line <= end for start, end in its.guards) or qualified.partition(".")[0] in its.hidden:
        return False
    used = (script.looked_up(each.__code__) for each in script.functions_of(function))
    return (its.hidden - its.shown).isdisjoint(itertools.chain(*used))


def _tell_of_changes(file: str, function: Any, qualified: str) -> None:
    """Warn once of each variable of the script that an import of it does not have as the program has it now."""
    for variable in script.changed(function, script.of(file)):
        if (qualified, variable) not in _told:
            _told.add((qualified, variable))
            _log.warning(
                "%s uses %s, which has another value in this program than in a slot, which imports %s: give it with the items, or as arg",
                qualified, variable, os.path.basename(file),
            )


_told: set[tuple[str, str]] = set()


_TEMPLATE = '''"""{name} of {where}, as it was when it was given to gpumux."""
import base64, pickle, sys

sys.path += [path for path in {paths!r} if path not in sys.path]
{name} = pickle.loads(base64.b64decode("{pickled}"))
'''


def _written(function: Callable[..., Any], state: str) -> Named:
    """A task file with the function pickled. The same function makes the same file, so that its map is found again."""
    need_cloudpickle(function)
    from .byvalue import Pickler
    from .steady import dumps

    pickled = base64.b64encode(dumps(function, Pickler, 4)).decode()
    title = getattr(function, "__name__", "") or type(function).__name__
    title = title if title.isidentifier() else "function"
    text = _TEMPLATE.format(
        name=title, where=getattr(function, "__module__", None) or "a program", pickled=pickled,
        paths=paths(),
    )
    folder = os.path.join(state, hashlib.sha256(text.encode()).hexdigest()[:16])
    os.makedirs(folder, mode=0o700, exist_ok=True)
    file = os.path.join(folder, f"{title}.py")
    new = f"{file}.{os.getpid()}"
    with open(new, "w", encoding="utf-8") as out:
        out.write(text)
    os.replace(new, file)
    return Named(f"{file}:{title}", None, file)


def need_cloudpickle(function: Any) -> types.ModuleType:
    """The module that pickles a function by value."""
    try:
        import cloudpickle
    except ImportError:
        guard = 'if __name__ == "__main__":'
        raise BadInput(
            f"{getattr(function, '__qualname__', function)!s} is of a notebook, another function or a lambda, or of a script that maps without "
            f"`{guard}`, or it or what it uses is defined under that line, so a task process cannot import it: pip install cloudpickle, or put it "
            "into a file of its own"
        ) from None
    return cloudpickle

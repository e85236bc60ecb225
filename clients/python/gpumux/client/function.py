"""Names a function for the command: by its module, or by value."""

from __future__ import annotations

import ast
import base64
import contextlib
import dis
import functools
import hashlib
import inspect
import os
import site
import sys
import types
from typing import Any, Callable, Iterator, NamedTuple, Optional

from .fault import BadInput


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
    kinds = [name.encode() for name in _script_of(own["__file__"]).hidden if isinstance(own.get(name), (type, types.FunctionType))]
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


class _Script(NamedTuple):
    """A script's statements under `if __name__ == "__main__"`."""

    guards: list[tuple[int, int]]
    """The lines of each such `if`."""
    hidden: frozenset[str]
    """The names that they bind, which an import does not."""
    shown: frozenset[str]
    """The names that others bind."""
    constants: dict[str, Any]
    """Those of them whose value stands in the file."""
    filled: dict[int, frozenset[str]]
    """The names of lists, dicts and sets that a function changes, by its first line."""


def _has(file: str, function: Callable[..., Any], qualified: str) -> bool:
    """Whether an import of the script has the function with what it uses. What the script runs now is guarded then, and the function
    is not."""
    try:
        script = _script_of(file)
    except (OSError, SyntaxError):
        return False
    frame, line = inspect.currentframe(), 0
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__main__":
            line = frame.f_lineno
        frame = frame.f_back
    if not any(start <= line <= end for start, end in script.guards) or qualified.partition(".")[0] in script.hidden:
        return False
    used, stored = _names(function)
    return (script.hidden - script.shown).isdisjoint(used) and not any(map(_changed, used - stored))


def _names(function: Any) -> tuple[set[str], set[str]]:
    """The names of the script that a function or a class and the script's functions that it calls look up, and those that they set or
    fill, such as a cache."""
    own = vars(sys.modules["__main__"])
    used: set[str] = set()
    stored: set[str] = set()
    left, seen = [function], set()
    while left:
        each = left.pop()
        members = vars(each).values() if isinstance(each, type) else [inspect.unwrap(each)]
        for code in {member.__code__ for member in members if isinstance(member, types.FunctionType)} - seen:
            seen.add(code)
            names, set_here = _used(code)
            set_here |= _script_of(own["__file__"]).filled.get(code.co_firstlineno, frozenset())
            left += [own[name] for name in names - used if callable(own.get(name)) and getattr(own[name], "__module__", None) == "__main__"]
            used |= names
            stored |= set_here
    return used, stored


def _changed(name: str) -> bool:
    """Whether the program has given a name another value than its file says, as after `global`: an import would have the file's."""
    own = vars(sys.modules["__main__"])
    constants = _script_of(own["__file__"]).constants
    if name not in constants or name not in own:
        return False
    try:
        return type(own[name]) is not type(constants[name]) or not own[name] == constants[name]
    except Exception:
        return True  # what it has now does not compare


def _script_of(file: str) -> _Script:
    return _script(file, os.stat(file).st_mtime_ns)


@functools.lru_cache(maxsize=1)
def _script(file: str, changed: int) -> _Script:
    with open(file, "rb") as text:
        body = ast.parse(text.read()).body
    guards = [node for node in body if isinstance(node, ast.If) and "__name__" in ast.dump(node.test)]
    bound: dict[bool, set[str]] = {True: set(), False: set()}
    constants: dict[str, Any] = {}
    for node in body:
        names = set(_bound(node))
        bound[node in guards].update(names)
        if node in guards:
            continue
        for name in names:
            constants.pop(name, None)
        for name, value in _assigned(node):
            with contextlib.suppress(ValueError, TypeError, MemoryError):  # it is no constant
                constants[name] = ast.literal_eval(value)
    functions = [each for node in body for each in ast.walk(node) if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))]
    filled = {min(each.lineno for each in (node, *node.decorator_list)): frozenset(_filled(node)) for node in functions}
    lines = [(node.lineno, node.end_lineno or 0) for node in guards]
    return _Script(lines, frozenset(bound[True]), frozenset(bound[False]), constants, filled)


_FILLING = {
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove", "reverse", "setdefault", "sort",
    "update",
}


def _filled(function: ast.AST) -> Iterator[str]:
    """The names whose elements a function sets or deletes, or which it changes by a method."""
    for node in ast.walk(function):
        if isinstance(node, ast.Subscript):
            changes = not isinstance(node.ctx, ast.Load)
        else:
            changes = isinstance(node, ast.Attribute) and node.attr in _FILLING
        if changes and isinstance(node.value, ast.Name):  # type: ignore[attr-defined]
            yield node.value.id  # type: ignore[attr-defined]


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The names that a statement gives one value each."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) and node.value else []
    for target in targets:
        several = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple) and len(target.elts) == len(node.value.elts)
        for name, value in zip(target.elts, node.value.elts) if several else [(target, node.value)]:
            if isinstance(name, ast.Name):
                yield name.id, value


def _bound(node: ast.AST) -> Iterator[str]:
    """The names that a statement binds in its module."""
    if isinstance(node, ast.alias):
        yield node.asname or node.name.partition(".")[0]
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    else:
        for each in ast.iter_child_nodes(node):
            yield from _bound(each)


@functools.lru_cache(maxsize=1024)
def _used(code: types.CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """The names that code looks up in its module, and those that it sets."""
    inner = [_used(each) for each in code.co_consts if isinstance(each, types.CodeType)]
    used, stored = (
        frozenset(each.argval for each in dis.get_instructions(code) if each.opname == name) for name in ("LOAD_GLOBAL", "STORE_GLOBAL")
    )
    return used.union(*(each for each, _ in inner)), stored.union(*(each for _, each in inner))


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
            f"`{guard}`, or it or what it uses is defined under that line, or was changed since, so a task process cannot import it: "
            "pip install cloudpickle, or put it into a file of its own"
        ) from None
    return cloudpickle

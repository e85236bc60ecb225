"""Finds the function that a task names.

Owns import and look-up, and which files were loaded for it. Never calls the function. Targets are "module:function" and
"file.py:function"; the function may be a dotted path.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from types import ModuleType
from typing import Any, Callable

import gpumux

from .fault import describe, plain


class LoadError(Exception):
    """The task could not be loaded; fault says why."""

    def __init__(self, fault: dict) -> None:
        super().__init__(fault["message"])
        self.fault = fault


def load(target: str, folder: str, own: bool = False) -> Callable[..., Any]:
    """The function that target names, relative to folder; own refuses one that the file has from elsewhere."""
    where, colon, name = target.rpartition(":")
    if not colon or not where or not name:
        raise LoadError(plain("ValueError", f"{target!r} names no task; write file.py:function or module:function"))
    module = _file(where, folder) if where.endswith(".py") else _module(where, folder)
    found = _function(module, where, name)
    if own and not _owns(os.path.basename(where)[: -len(".py")] if where.endswith(".py") else where, found):
        origin = getattr(found, "__module__", None) or type(found).__module__
        message = f"{name} in {where} comes from {origin}; of a folder of tasks only functions that its files define are run"
        raise LoadError(plain("PermissionError", message))
    return found


def ready(function: Callable[..., Any]) -> Callable[..., Any]:
    """What runs the items: of a class whose objects can be called, an object, made here and now."""
    if not isinstance(function, type) or not any("__call__" in vars(each) for each in function.__mro__):
        return function
    try:
        return function(**_arguments(function)).__call__
    except BaseException as error:
        raise LoadError(describe(error)) from error


def _arguments(kind: type) -> dict:
    """The fields of the map's arg, where __init__ has arguments: a mere (*args, **kwargs) is of a base such as torch.nn.Module."""
    try:
        signature = inspect.signature(kind)
    except ValueError:
        return {}  # as of a class in C
    any_positional, any_keyword = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    if {each.kind for each in signature.parameters.values()} in (set(), {any_positional}, {any_positional, any_keyword}):
        return {}
    arg = gpumux.arg()
    fields = arg if isinstance(arg, dict) else {}
    try:
        signature.bind(**fields)
    except TypeError as error:
        given = ", ".join(fields) or ("none" if fields is arg or arg is None else f"no fields: it is a {type(arg).__name__}")
        raise TypeError(f"{kind.__qualname__}{signature} gets the fields of --arg, which has {given}: {error}") from None
    return fields


def _file(where: str, folder: str) -> ModuleType:
    path = os.path.abspath(os.path.join(folder, where))
    parent, base = os.path.split(path)
    if not os.path.isfile(path):
        there = f"there is no {where} in {folder or os.getcwd()}"
        raise LoadError(plain("FileNotFoundError", f"{there}; {parent} has: {_files(parent)}"))
    stem = base[: -len(".py")]
    loaded = sys.modules.get(stem)
    if loaded is not None and getattr(loaded, "__file__", None) == path:
        return loaded
    if loaded is not None:
        message = f"{where} has the name of the module {stem}, which is loaded already; rename the file"
        raise LoadError(plain("ImportError", message))
    sys.path.insert(0, parent)
    spec = importlib.util.spec_from_file_location(stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        sys.modules.pop(stem, None)
        raise LoadError(_failure(error, where)) from error
    # A module may replace itself during its import.
    return sys.modules.get(stem, module)


def _module(where: str, folder: str) -> ModuleType:
    folder = os.path.abspath(folder or ".")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name is None or not (where + ".").startswith(error.name + "."):
            raise LoadError(describe(error)) from error
        message = f"there is no module {error.name}; {folder} has: {_files(folder)}"
        raise LoadError(plain("ModuleNotFoundError", message)) from error
    except BaseException as error:
        raise LoadError(_failure(error, where)) from error


def _failure(error: BaseException, where: str) -> dict:
    fault = describe(error)
    if isinstance(error, SystemExit):
        instead = 'take that out of it, or put it under if __name__ == "__main__"'
        fault["message"] = f"the import of {where} called sys.exit({error.code!r}); {instead}"
    return fault


def _function(module: ModuleType, where: str, name: str) -> Callable[..., Any]:
    found: Any = module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            message = f"{where} has no function {name}; it has: {_functions(module)}"
            raise LoadError(plain("AttributeError", message)) from None
        except BaseException as error:
            raise LoadError(describe(error)) from error
    if not callable(found):
        kind = type(found).__name__
        message = f"{name} in {where} is a {kind}, which cannot be called; the functions are: {_functions(module)}"
        raise LoadError(plain("TypeError", message))
    return found


def _owns(module: str, found: Any) -> bool:
    """Whether found was defined in the module, or is what a decorator made of such a function."""
    seen: list[int] = []
    while found is not None and id(found) not in seen:
        if getattr(found, "__module__", None) == module:
            return True
        seen.append(id(found))
        found = getattr(found, "__wrapped__", None)
    return False


def _functions(module: ModuleType) -> str:
    own = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and callable(value) and getattr(value, "__module__", None) == module.__name__
    ]
    return ", ".join(own) or "none"


def _files(folder: str) -> str:
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".py"))
    except OSError as error:
        return f"nothing ({error.strerror})"
    return ", ".join(names[:20]) + (", …" if len(names) > 20 else "") or "no .py files"

"""What the program's own file says: what an import of it has, as slots import it, and what the program has now in place of that.

Owns the reading of the file. Never imports it. Which variables have changed it tells as far as the file shows their values: numbers,
texts, lists and dicts, and names that are bound again under `if __name__ == "__main__"`. Attributes of objects are not among them.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import functools
import inspect
import os
import sys
import types
from typing import Any, Iterator, NamedTuple


class Script(NamedTuple):
    """A script's statements, in and outside of `if __name__ == "__main__"`."""

    guards: list[tuple[int, int]]
    """The lines of each such `if`."""
    hidden: frozenset[str]
    """The names that they bind, which an import does not."""
    shown: frozenset[str]
    """The names that others bind."""
    constants: dict[str, Any]
    """Those of them whose value stands in the file, and which nothing else changes when it is imported."""
    touched: dict[int, frozenset[str]]
    """The names that a function sets, or whose elements it changes, by its first line."""


def of(file: str) -> Script:
    """Raises OSError or SyntaxError where the file is no script any more."""
    return _read(file, os.stat(file).st_mtime_ns)


@functools.lru_cache(maxsize=1)
def _read(file: str, changed: int) -> Script:
    with open(file, "rb") as text:
        body = ast.parse(text.read()).body
    guards = [node for node in body if isinstance(node, ast.If) and "__name__" in ast.dump(node.test)]
    bound: dict[bool, set[str]] = {True: set(), False: set()}
    for node in body:
        bound[node in guards].update(_bound(node))
    outside = [node for node in body if node not in guards]
    every = [each for node in body for each in ast.walk(node) if isinstance(each, _FUNCTIONS)]
    return Script(
        [(node.lineno, node.end_lineno or 0) for node in guards], frozenset(bound[True]), frozenset(bound[False]), _constants(outside),
        {min(each.lineno for each in (node, *node.decorator_list)): frozenset(_touched(node)) for node in every},
    )


_FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef


def _constants(body: list[ast.stmt]) -> dict[str, Any]:
    """The names with one literal value, without those that another statement of the body changes, or a function that it calls."""
    values: dict[str, Any] = {}
    bound: list[str] = []
    loaded: set[str] = set()
    for node in body:
        bound += set(_bound(node))
        loaded |= _loaded(node)
        for name, value in _assigned(node):
            with contextlib.suppress(ValueError, TypeError, MemoryError):  # it is no literal
                values[name] = ast.literal_eval(value)
    definitions = {node.name: node for node in body if isinstance(node, (*_FUNCTIONS, ast.ClassDef))}
    touched: set[str] = set()
    called: set[str] = set()
    left = loaded & {*definitions}
    while left:
        called |= left
        left = {name for each in left for name in _names(definitions[each])} & {*definitions} - called
    for each in called:
        touched |= {*_touched(definitions[each])}
    return {
        name: value for name, value in values.items()
        if bound.count(name) == 1 and "*" not in bound and name not in touched and not (name in loaded and isinstance(value, (list, dict, set)))
    }


def _loaded(node: ast.AST) -> set[str]:
    """The names that a statement looks up when it runs: of a function these are its decorators and defaults."""
    if isinstance(node, _FUNCTIONS):
        parts: list[Any] = [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]
    elif isinstance(node, ast.Lambda):
        parts = []
    else:
        parts = [*ast.iter_child_nodes(node)]
    own = {node.id} if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) else set()
    return own.union(*map(_loaded, parts))


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


_CHANGING = {
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "remove", "reverse", "setdefault", "sort",
    "update",
}


def _touched(function: ast.AST) -> Iterator[str]:
    """The names that a function declares global, whose elements it sets or deletes, or which it changes by a method."""
    for node in ast.walk(function):
        if isinstance(node, ast.Global):
            yield from node.names
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) or isinstance(node, ast.Attribute) and node.attr in _CHANGING:
            inside = node.value
            while isinstance(inside, (ast.Subscript, ast.Attribute)):
                inside = inside.value
            if isinstance(inside, ast.Name):
                yield inside.id


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
    elif isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    else:
        for each in ast.iter_child_nodes(node):
            yield from _bound(each)


def changed(function: Any, script: Script) -> list[str]:
    """The variables that a function of the program's own file uses, beside its caches, which have other values now than an import has."""
    own = vars(sys.modules["__main__"])
    used, touched = _uses(function, script)
    again = script.hidden & script.shown
    return sorted(
        name for name in used - touched
        if name in own and (
            _differs(own[name], script.constants[name]) if name in script.constants
            else name in again and not callable(own[name]) and not isinstance(own[name], types.ModuleType)
        )
    )


def _differs(now: Any, then: Any) -> bool:
    try:
        return type(now) is not type(then) or not now == then
    except Exception:
        return True  # what it has now does not compare


def _uses(function: Any, script: Script) -> tuple[set[str], set[str]]:
    """The names that a function, and the script's functions that it calls, look up, and those of them that they change."""
    own = vars(sys.modules["__main__"])
    used: set[str] = set()
    touched: set[str] = set()
    left, seen = [function], set()
    while left:
        for code in {each.__code__ for each in functions_of(left.pop())} - seen:
            seen.add(code)
            names = looked_up(code)
            touched |= looked_up(code, "STORE_GLOBAL")
            left += [own[name] for name in names - used if name in own]
            used |= names
            touched |= script.touched.get(code.co_firstlineno, frozenset()) & names
    return used, touched


def functions_of(value: Any) -> Iterator[types.FunctionType]:
    """The functions that a function or a class of the script is made of; nothing of other things."""
    if isinstance(value, type):
        for kind in value.__mro__:
            for member in vars(kind).values() if kind.__module__ == "__main__" else ():
                if not isinstance(member, type):
                    yield from functions_of(member)
        return
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    elif isinstance(value, property):
        value = value.fget
    if isinstance(value, (types.FunctionType, functools._lru_cache_wrapper)):
        value = inspect.unwrap(value)
        if isinstance(value, types.FunctionType) and value.__module__ == "__main__":
            yield value


@functools.lru_cache(maxsize=1024)
def looked_up(code: types.CodeType, operation: str = "LOAD_GLOBAL") -> frozenset[str]:
    """The names that code looks up in its module, or what else it does with some."""
    inner = (looked_up(each, operation) for each in code.co_consts if isinstance(each, types.CodeType))
    return frozenset(each.argval for each in dis.get_instructions(code) if each.opname == operation).union(*inner)

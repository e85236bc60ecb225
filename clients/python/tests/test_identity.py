import os
import subprocess
import sys
import tempfile
import unittest

# A function by value, with what has another order, number or identity in each process.
PROGRAM = """
import {imports}
import collections, dataclasses, datetime, enum, os, pathlib, sys, typing
import xml, concurrent
from gpumux.client import function

{first} = None
T = typing.TypeVar("T")

class Shade(enum.Enum):
    DARK = "dark"
    LIGHT = "light"

@dataclasses.dataclass
class Pair(typing.Generic[T]):
    "Without this line its text would be a printed set."
    left: T
    right: frozenset = frozenset(("one", "other"))

class Holder:
    pass

words = set(("the", "a", "of", "and", "to", "in"))
nested = {{"x": [{{("a", frozenset(("p", "q", "r"))), ("b", frozenset(("s", "t")))}}]}}
mixed = {{1, 2.5, "text", b"bytes", None, Shade.DARK, Shade.LIGHT, datetime.date(2026, 1, 1), pathlib.PurePath("x"), Pair, len, str}}
attribute = "".join(("made_at_", "run_time"))
holder = Holder()
setattr(holder, attribute, [attribute, "".join(("made_at_", "run_time"))])
holder.holders = set((holder,))

def outer():
    inside = set(("u", "v", "w"))
    def inner(word, stop=frozenset(("x", "y", "z")), *, more={{"k", "l", "m"}}):
        def each(): return word in {{"alpha", "beta", "gamma"}}
        xml.dom.minidom, xml.sax.saxutils, concurrent.futures
        return each(), word in inside, word in stop, word in more, len(words), nested, mixed, Pair(1), holder, os.sep
    return inner

inner = outer()
print(function.name(inner, {state!r}).task)
"""

# They load the same modules and intern the same text, in another order.
ORDERS = [
    {"imports": "xml.dom.minidom, xml.sax.saxutils, concurrent.futures", "first": "made_at_run_time"},
    {"imports": "concurrent.futures, xml.sax.saxutils, xml.dom.minidom", "first": "another"},
]


class Identity(unittest.TestCase):
    def test_in_every_process(self):
        """One function has one task, whatever the hash seed and what was imported first, and it runs."""
        with tempfile.TemporaryDirectory() as state:
            tasks = {run(PROGRAM.format(state=state, **order), PYTHONHASHSEED=seed) for order, seed in zip(ORDERS, "12")}
            self.assertEqual(len(tasks), 1, tasks)
            file, name = tasks.pop().split(":")
            calls = f"import {name}; found = {name}.{name}('alpha'); print(found[:5]); assert found[8] in found[8].holders"
            self.assertEqual(run(calls, PYTHONPATH=os.pathsep.join([os.path.dirname(file), *sys.path])), "(True, False, False, False, 6)")
            other = run(PROGRAM.format(state=state, **ORDERS[0]).replace('"the", "a"', '"the", "an"'))
            self.assertNotEqual(other.split(":")[0], file)


def run(program, **environ):
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, **environ}, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout.strip()

import json
import pathlib
import tempfile
import unittest

import nbclient
import nbformat
from nbclient.exceptions import DeadKernelError

FUNCTION = """
import pathlib, time
factor = 3

def triple(item):
    folder, n = item
    with open(pathlib.Path(folder, str(n)), "a") as marks:
        marks.write("x")
    time.sleep(0.02)
    return n * factor
"""

MAP = """
import gpumux, json, os, signal
found = []
for result in gpumux.map(triple, [[{folder!r}, n] for n in range(100)], slots=2, chunk=1):
    found.append(result.value)
    if result.index == {dies}:
        os.kill(os.getpid(), signal.SIGKILL)
print(json.dumps(found))
"""


class Notebook(unittest.TestCase):
    def test_a_killed_kernel(self):
        """The kernel is killed in the middle. The same cells in a new one go on where it was."""
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaises(DeadKernelError):
                run(FUNCTION, MAP.format(folder=folder, dies=20))
            cells = run(FUNCTION, MAP.format(folder=folder, dies=-1))
            printed = [output.text for output in cells[-1].outputs if output.get("name") == "stdout"]
            self.assertEqual(json.loads(printed[-1]), [3 * n for n in range(100)])
            ran = [len(pathlib.Path(folder, str(n)).read_text()) for n in range(100)]
            self.assertEqual(ran[:21], [1] * 21)

    def test_classes_of_a_notebook(self):
        """They are the same in the function, in its items and in its values, and stay as they are in the notebook."""
        define = """
import dataclasses, gpumux
seen = []

@dataclasses.dataclass
class Point:
    x: int

    def see(self):
        seen.append(self.x)

def move(point):
    assert type(point) is Point
    return Point(point.x + 1)
"""
        call = """
(one, other) = [r.value for r in gpumux.map(move, [Point(1), Point(2)], slots=1, pickle=True, raise_faults=True)]
one.see()
print(one == Point(2), type(other) is Point, seen)
"""
        cells = run(define, call)
        self.assertEqual([output.text for output in cells[-1].outputs if output.get("name") == "stdout"], ["True True [2]\n"])

    def test_output_shows_as_results_come(self):
        """A cell shows what items print before the last of them has run."""
        define = """
import gpumux, pathlib, time

def tell(item):
    print("at", item[1])
    while item[1] == 1 and not pathlib.Path(item[0]).exists():
        time.sleep(0.01)
"""
        call = """
for result in gpumux.map(tell, [[{go!r}, 0], [{go!r}, 1]], slots=2, chunk=1, show_output=True):
    print("given", result.index)
    pathlib.Path({go!r}).touch()
"""
        with tempfile.TemporaryDirectory() as folder:
            cells = run(define, call.format(go=folder + "/go"))
        shown = "".join(output.text for output in cells[-1].outputs if output.get("name") == "stdout")
        self.assertEqual(shown, "at 0\ngiven 0\nat 1\ngiven 1\n")


def run(*cells):
    """The cells after they ran in a kernel of their own."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    return nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute().cells

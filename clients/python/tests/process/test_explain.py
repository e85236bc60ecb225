"""Which lines allocated what devices hold: of JAX itself, on the CPU, and of PyTorch by the structure that its documentation gives."""

import importlib.util
import os
import subprocess
import sys
import textwrap
import types
import unittest
from unittest import mock

from gpumux.process import explain
from gpumux.process.fault import describe

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GIB = 1 << 30


class OutOfMemoryError(RuntimeError):
    __module__ = "torch"


def frames(*places):
    return [{"filename": file, "line": line, "name": name} for file, line, name in places]


LOADING = frames(("/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py", 112, "__init__"), ("/work/model.py", 12, "load"))
FORWARD = frames(
    ("/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py", 125, "forward"),
    ("/venv/lib/python3.12/site-packages/transformers/models/bert/modeling_bert.py", 512, "forward"),
    ("/work/model.py", 40, "embed"),
    (os.path.join(ROOT, "gpumux", "process", "call.py"), 7, "_one"),
)


def torch(*segments, up=True):
    fake = types.ModuleType("torch")
    fake.__file__ = "/venv/lib/python3.12/site-packages/torch/__init__.py"
    fake.cuda = types.SimpleNamespace(
        is_initialized=lambda: up, memory=types.SimpleNamespace(_snapshot=lambda: {"segments": list(segments), "device_traces": [[]]})
    )
    return mock.patch.dict(sys.modules, {"torch": fake})


def segment(device, *blocks):
    return {"device": device, "total_size": 9 * GIB, "blocks": list(blocks)}


def block(size, stack=None, state="active_allocated"):
    return {"size": size, "requested_size": size, "state": state, **({} if stack is None else {"frames": stack})}


class TestTorch(unittest.TestCase):
    def held(self, *segments, up=True):
        with torch(*segments, up=up):
            return explain.held(["torch"]).split("\n")

    def test_the_fullest_device_by_lines_of_the_task(self):
        segments = [
            segment(0, block(GIB, FORWARD), block(4 * GIB, state="inactive")),
            segment(0, block(2 * GIB, LOADING), block(GIB, FORWARD), block(2 * GIB, LOADING)),
            segment(1, block(GIB, LOADING)),
        ]
        self.assertEqual(
            self.held(*segments),
            [
                "cuda:0 held 6.0GiB, allocated by",
                "    4.0GiB  2 × work/model.py:12 load",
                "    2.0GiB  2 × bert/modeling_bert.py:512 forward, from work/model.py:40 embed",
            ],
        )

    def test_many_places_stay_short(self):
        blocks = [block((i + 1) << 20, frames(("/work/model.py", i, "load"))) for i in range(40)]
        held = self.held(segment(0, *blocks))
        self.assertEqual(len(held), 5)
        self.assertEqual(held[1], "   40.0MiB  1 × work/model.py:39 load")
        self.assertEqual(held[-1], "  703.0MiB  by 37 other lines")

    def test_what_was_not_recorded(self):
        self.assertEqual(self.held(segment(0, block(GIB), block(GIB, []))), [
            "cuda:0 held 2.0GiB; --explain-oom, explain_oom in a worker's file, says which lines allocated it"
        ])
        self.assertEqual(self.held(segment(0, block(GIB), block(2 * GIB, LOADING)))[2], "    1.0GiB  1 × lines that were not recorded")
        with mock.patch.dict(os.environ, GPUMUX_EXPLAIN_OOM="1"):
            self.assertEqual(self.held(segment(0, block(GIB))), ["cuda:0 held 1.0GiB"])

    def test_nothing_to_say(self):
        self.assertEqual(self.held(segment(0, block(GIB, LOADING)), up=False), [""])
        self.assertEqual(self.held(segment(0, block(GIB, state="inactive"))), [""])
        self.assertEqual(self.held({"blocks": [block(GIB)]}), [""], "another release")

    def test_the_end_of_a_fault(self):
        with torch(segment(0, block(GIB, LOADING))):
            try:
                raise OutOfMemoryError("CUDA out of memory")
            except OutOfMemoryError as error:
                self.assertRegex(describe(error)["traceback"], r"(?s)^Traceback .*out of memory\n+cuda:0 held 1.0GiB.*load$")
            self.assertIn("held", describe(RuntimeError("CUDA error: out of memory"))["traceback"])
            for other in ValueError("no"), MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory"):
                self.assertNotIn("held", describe(other).get("traceback", ""), "it is no device's")
            with mock.patch.object(explain, "held", side_effect=OSError("too many open files")):
                self.assertEqual(describe(RuntimeError("CUDA error: out of memory"))["message"], "CUDA error: out of memory")

    def test_recording_begins_with_cuda(self):
        script = """
            import sys, types
            from gpumux.process import explain
            explain.record()
            import torch
            assert torch.calls == [], "CUDA has not begun"
            torch.waiting.pop()()
            print(torch.calls)
        """
        package = """
            import types
            waiting, calls = [], []
            memory = types.SimpleNamespace(_record_memory_history=lambda *words, **more: calls.append((words, more)))
            cuda = types.SimpleNamespace(_lazy_call=waiting.append, memory=memory)
        """
        self.assertEqual(run(self, script, package), "[(('state',), {'context': 'state', 'stacks': 'python'})]\n")
        broken = package.replace("calls.append((words, more))", "1 / 0")
        self.assertEqual(run(self, script, broken, "PyTorch cannot say which lines allocate: ZeroDivisionError"), "[]\n", "CUDA starts all the same")
        self.assertEqual(run(self, script.replace("torch.waiting.pop()()", ""), "calls = []", "which lines allocate: AttributeError"), "[]\n")


def run(test, script, torch, says=""):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "torch.py"), "w") as file:
            file.write(textwrap.dedent(torch))
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": os.pathsep.join([ROOT, folder])},
        )
    test.assertEqual(done.returncode, 0, done.stderr)
    test.assertIn(says, done.stderr)
    return done.stdout


MODEL = """
import jax.numpy as jnp

def load():
    return [jnp.ones((1024, 1024)) for _ in range(3)]

weights = load()
bias = jnp.zeros((1024, 256)) + 1
"""


@unittest.skipUnless(importlib.util.find_spec("jax"), "there is no JAX")
class TestJAX(unittest.TestCase):
    def test_its_own_profile(self):
        script = f"""
import os, sys
from gpumux.process import explain
import jax
assert explain.held(["jax"]) == "", "nothing has begun"
exec(compile({MODEL!r}, os.path.join("work", "model.py"), "exec"))
print(explain.held(["jax"]))
"""
        env = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": ROOT}
        said = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, env=env, check=True, text=True).stdout.split("\n")
        self.assertEqual(said[0], "cpu:0 held 13.0MiB, allocated by")
        self.assertRegex(said[1], r"^ +12\.0MiB  3 × work/model\.py:5 .*load, from work/model\.py:7 <module>$")
        self.assertRegex(said[2], r"^ +1\.0MiB  1 × work/model\.py:8 <module>$")

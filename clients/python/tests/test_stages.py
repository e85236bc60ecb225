import datetime
import json
import os
import tempfile
import unittest
import unittest.mock

import gpumux
from gpumux.client.options import flags
from gpumux.client.stages import tasks as read

from . import tasks


def values(results):
    return [result.value for result in results]


class Stages(unittest.TestCase):
    def setUp(self):
        state = tempfile.TemporaryDirectory()
        self.addCleanup(state.cleanup)
        environ = unittest.mock.patch.dict(os.environ, XDG_STATE_HOME=state.name)
        environ.start()
        self.addCleanup(environ.stop)
        self.state = os.path.join(state.name, "gpumux")

    def test_values_go_from_one_to_the_next(self):
        results = gpumux.map([tasks.double, lambda x: x + 1, lambda x: -x, tasks.Offset], range(4), slots=1)
        self.assertEqual(values(results), [99, 97, 95, 93])
        self.assertEqual(values(gpumux.starmap([pow, tasks.double], [(2, 3), (3, 2)], slots={"cpu": 2, "cpu-b": 1})), [16, 18])
        self.assertEqual(values(gpumux.map([gpumux.stage("math:sqrt", pool="cpu")], [4.0])), [2.0])
        for folder in "local", "functions":
            self.assertEqual(os.listdir(os.path.join(self.state, folder)), [])

    def test_faults_of_each(self):
        def five(x):
            if x == 5:
                raise KeyError("five")
            return x * 10

        found = list(gpumux.map([tasks.picky, five], [1, 3, 4, 5, 6], slots=1))
        self.assertEqual([result.index for result in found], [0, 1, 2, 3, 4])
        self.assertEqual(values(found), [10, None, 40, None, 60])
        self.assertEqual([(found[i].fault.raised, found[i].fault.fields["task"]) for i in (1, 3)],
            [("ValueError", "tests.tasks:picky"), ("KeyError", "five.py:five")])

    def test_pickled_values_stay_what_they_are(self):
        items = [{1, 2}, (1, "x"), datetime.date(2026, 1, 2), b"\x00", "text", None, tasks.Pair(1, (2,))]
        results = list(gpumux.map([tasks.same, lambda x: [x], tasks.same], items, pickle=True, slots=1, with_item=True))
        self.assertEqual(values(results), [[item] for item in items])
        self.assertEqual([result.item for result in results], items)

    def test_options_of_a_stage(self):
        once = gpumux.stage(tasks.failing_once, attempts=2, mode="persistent", chunk=1, timeout=60.5, backoff=0.01)
        self.assertEqual(values(gpumux.map([tasks.double, once], [1, 2], slots=1, arg=self.state)), [2, 4])

    def test_classes_with_arguments_of_their_own(self):
        stages = [tasks.Scale, gpumux.stage(tasks.Scale, arg={"factor": 10}), tasks.Scale]
        self.assertEqual(values(gpumux.map(stages, [1, 2], slots=1, arg={"factor": 2, "offset": 1})), [61, 101])

    def test_args_that_are_too_large_for_a_stage(self):
        import numpy

        with self.assertRaisesRegex(TypeError, "give arrays in the arg of the map"):
            gpumux.stage("a:f", arg={"w": numpy.arange(3)})
        with self.assertRaisesRegex(ValueError, "has 16386 bytes as JSON, more than 16384"):
            gpumux.stage("a:f", arg="x" * (16 << 10))
        with self.assertRaisesRegex(TypeError, "retry_on: 3 is no class of exceptions"):
            gpumux.stage("a:f", attempts=2, retry_on=[OSError, 3])

    def test_what_a_stage_says_to_the_command(self):
        once = gpumux.stage("b:g", pool=["gpu", "cpu"], attempts=3, retry_on=(OSError, "a.B"), timeout=1.5, keep=True, arg={"x": [1]})
        self.assertEqual(read("a:f", "").words, ["a:f"])
        words = read([once, "c:h"], "").words
        self.assertEqual(words[::2], ["--stage"] * 2)
        self.assertEqual([json.loads(word) for word in words[1::2]],
            [{"task": "b:g", "ladder": ["gpu", "cpu"], "arg": {"x": [1]}, "timeout": 1.5, "attempts": 3, "retryOn": ["OSError", "a.B"], "keep": True},
             {"task": "c:h"}])
        self.assertEqual(flags({"slots": {"cpu": 6, "gpu": "auto"}}), ["--slots", "cpu=6,gpu=auto"])

    def test_mistakes(self):
        with self.assertRaisesRegex(TypeError, "stream takes one function"):
            gpumux.stream([tasks.double, tasks.same], [1])
        with self.assertRaisesRegex(TypeError, "the list of functions is empty"):
            gpumux.map([], [1])
        with self.assertRaisesRegex(TypeError, "give a function, not a stage"):
            gpumux.stage(gpumux.stage(tasks.same))
        with self.assertRaisesRegex(TypeError, "7 is no function"):
            gpumux.map([tasks.double, 7], [1])
        for said, functions, options in (
            ("attempts 1000 is outside 1 to 100", [gpumux.stage(tasks.same, attempts=1000), tasks.same], {}),
            ("attempts is a string", [gpumux.stage(tasks.same, attempts="x"), tasks.same], {}),
            ('"GPU"', [gpumux.stage(tasks.same, pool="GPU"), tasks.same], {"pool": "cpu"}),
            (r"^slots=\{.*\} names 3 pools for 2 stages", [tasks.same, tasks.double], {"slots": {"a": 1, "b": 1, "c": 1}}),
            ("nothing runs in pool disk", [tasks.same, tasks.double], {"slots": {"disk": 1}, "pool": "cpu"}),
        ):
            with self.subTest(said), self.assertRaisesRegex(gpumux.BadInput, said):
                list(gpumux.map(functions, [1], **options))

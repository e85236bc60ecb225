import asyncio
import csv
import io
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
import unittest.mock

import gpumux
from gpumux.client.command import find
from gpumux.client.slurm import Slurm

from . import tasks


def values(results):
    return [result.value for result in results]


class Map(unittest.TestCase):
    def setUp(self):
        state = tempfile.TemporaryDirectory()
        self.addCleanup(state.cleanup)
        before = os.environ.get("XDG_STATE_HOME")
        os.environ["XDG_STATE_HOME"] = self.state = state.name
        self.addCleanup(lambda: os.environ.pop("XDG_STATE_HOME") if before is None else os.environ.update(XDG_STATE_HOME=before))

    def test_items_of_every_kind(self):
        import numpy

        for items, want in (
            ((n for n in (1, 2)), [2, 4]), (range(5, 8), [10, 12, 14]), (numpy.array([[1, 2], [3, 4]]), [[1, 2, 1, 2], [3, 4, 3, 4]]), ([], []),
        ):
            results = list(gpumux.map(tasks.double, items, slots=1))
            self.assertEqual([result.index for result in results], list(range(len(want))))
            self.assertEqual(values(results), want)
        self.assertEqual(os.listdir(os.path.join(self.state, "gpumux", "local")), [], "nothing is left of what was given")

    def test_notices_are_warnings(self):
        with unittest.mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES=""), self.assertLogs("gpumux", "WARNING") as logs:
            self.assertEqual(values(gpumux.map(tasks.double, [1])), [2])
        self.assertRegex(logs.output[0], "note: the CPU runs it: ")
        with unittest.mock.patch.dict(os.environ, HF_TOKEN="x", WANDB_API_KEY="y"), self.assertLogs("gpumux", "WARNING") as logs:
            self.assertEqual(values(gpumux.map(tasks.double, [1])), [2])
        self.assertIn("to pass on: pass_env=['HF_TOKEN', 'WANDB_API_KEY']", "\n".join(logs.output))

    def test_workers_of_others(self):
        command = find()
        with self.assertLogs("gpumux", "INFO") as logs:
            results = gpumux.map(lambda item: item + 1, range(40), pool="cpu", slots=2, workers=f"{command} worker -f {{}}; echo they ended >&2")
            self.assertEqual(values(results), list(range(1, 41)))
        self.assertRegex("\n".join(logs.output), r"the connection file is gone(?s:.*)they ended")
        with self.assertRaisesRegex(gpumux.Unavailable, "no such partition(?s:.*)the command of workers='echo no such partition; exit 1' ended"):
            list(gpumux.map(tasks.double, [1], workers=Slurm("echo no such partition; exit 1")))
        with self.assertRaisesRegex(gpumux.Unavailable, r"^sbatch: unrecognized option '--bogus=1'\nTry \"sbatch --help\"\n"):
            list(gpumux.map(tasks.double, [2], workers=Slurm("echo \"sbatch: unrecognized option '--bogus=1'\"; echo 'Try \"sbatch --help\"'; exit 1")))

    def test_slurm_says_what_sbatch_takes(self):
        command = gpumux.slurm(4, gpus_per_node=8, time="4:00:00", exclusive=True, qos=None, comment="a b").command
        self.assertRegex(command, r"^env GPUMUX_BINARY=\S+ bash \S+/workers.sh \{\} 4 --gpus-per-node=8 --time=4:00:00 --exclusive '--comment=a b'$")
        for nodes in 0, "4", True:
            with self.assertRaisesRegex(ValueError, "give how many workers"):
                gpumux.slurm(nodes)
        with self.assertRaisesRegex(ValueError, "requeue is False.*no_requeue=True"):
            gpumux.slurm(1, requeue=False)

    def test_an_arg(self):
        for arg in ({"by": 3}, "3"):
            self.assertEqual(values(gpumux.stream(tasks.shared, range(2), slots=1, arg=arg)), [arg, arg])
        large = {"text": "\u00e9" * 200_000, "nan": -math.inf, "text\x00": "\\u00e9"}
        for run, mode in (gpumux.map, "persistent"), (gpumux.stream, "fresh"):
            self.assertEqual(values(run(tasks.shared, range(2), slots=1, arg=large, mode=mode)), [large, large])
        import numpy

        arrays = {"index": numpy.arange(3_000_000.0).reshape(3, -1), "offset": 1}
        for run, mode in (gpumux.map, "persistent"), (gpumux.map, "fresh"), (gpumux.stream, "persistent"):
            looked = values(run(tasks.Look, range(3), slots=2, arg=arrays, mode=mode))
            self.assertEqual(looked, [[float(arrays["index"][i].sum()) + 1, False] for i in range(3)])
        with self.assertRaisesRegex(gpumux.BadInput, "more than 16MiB") as refused:
            gpumux.stream(tasks.shared, range(2), slots=1, arg="x" * (16 << 20)).faults()
        self.assertLess(len(str(refused.exception)), 500)

    def test_numbers_that_json_lacks(self):
        """NaN and the infinities are numbers on every way, at any depth, and the texts of that name are texts."""
        import numpy
        import pyarrow
        import pyarrow.parquet

        nan, inf = math.nan, math.inf
        items = [nan, inf, -inf, 1.5, [nan, {"a": [inf]}], {"x": -inf}, "NaN", ["Infinity", nan], "\\u004eaN"]
        results = list(gpumux.map(tasks.kinds, items, slots=1, with_item=True, arg=[nan, "NaN"]))
        self.assertEqual([repr(r.value) for r in results], [repr([x, type(x).__name__, [nan, "NaN"]]) for x in items])
        self.assertEqual([repr(r.item) for r in results], list(map(repr, items)))
        array = numpy.array([nan, 1.0], "f4")
        self.assertEqual(repr(values(gpumux.stream(tasks.array, array, slots=1))), repr([[nan, nan, inf, {"a": [nan]}], [1.0, nan, inf, {"a": [1.0]}]]))
        self.assertEqual(repr(values(gpumux.stream("math:fabs", [nan, -inf], slots=1, mode="fresh"))), "[nan, inf]")

        table = pathlib.Path(self.state, "items.parquet")
        pyarrow.parquet.write_table(pyarrow.table({"a": pyarrow.array([nan, None, -inf]), "b": ["NaN", "x", None]}), table)
        rows = [{"a": nan, "b": "NaN"}, {"a": None, "b": "x"}, {"a": -inf, "b": None}]
        self.assertEqual(repr(values(gpumux.map(tasks.same, source=table, slots=1))), repr(rows))

    def test_a_source(self):
        source = pathlib.Path(self.state, "items.csv")
        source.write_text("a,b\n1,2\n3,4\n")
        self.assertEqual(values(gpumux.map(tasks.field, source=source, slots=1)), [3, 7])
        self.assertEqual(values(gpumux.map(tasks.field, source=source, text=["a", "b"], slots=1)), ["12", "34"])
        folder = pathlib.Path(self.state, "data", "more")
        folder.mkdir(parents=True)
        for name in ("1.csv", "2.csv"):
            (folder / name).write_text(f"a,b\n{name[0]},5\n")
        self.assertEqual(values(gpumux.map(tasks.field, source=folder.parent, slots=1)), [6, 7])
        source.write_text("a,b\n1,2\n3,\n")
        self.assertEqual(values(gpumux.map(tasks.field, source=source, slots=1)), [3, None])
        with self.assertRaises(gpumux.MapFailed):
            list(gpumux.map(tasks.field, source=source, slots=1, max_failures=0))

        import pyarrow
        import pyarrow.parquet

        table = pathlib.Path(self.state, "items.parquet")
        pyarrow.parquet.write_table(pyarrow.table({"a": [1, 2], "b": [10, 20], "c": ["x", "y"]}), table)
        self.assertEqual(values(gpumux.map(tasks.field, source=table, columns=["a", "b"], slots=1)), [11, 22])

    def test_columns_of_any_name(self):
        import pyarrow
        import pyarrow.parquet

        names = ["price, EUR", 'say "hi"', '"', ",", "", "-x", "--columns", "a=b", "[1]", "two\nlines", " id ", "\u00e9", "id"]
        table, source = pathlib.Path(self.state, "items.parquet"), pathlib.Path(self.state, "items.csv")
        pyarrow.parquet.write_table(pyarrow.table([[1]] * len(names), names), table)
        self.assertEqual(values(gpumux.map(tasks.same, source=table, columns=names[:-1], slots=1)), [dict.fromkeys(names[:-1], 1)])
        with self.assertRaisesRegex(gpumux.BadInput, 'no column "price"; it has price, EUR,'):
            gpumux.map(tasks.same, source=table, columns=["price"], slots=1).faults()
        inside = [name for name in names if name.strip()]
        with source.open("w", newline="") as to:
            csv.writer(to).writerows([inside, ["1e5"] * len(inside)])
        self.assertEqual(values(gpumux.map(tasks.same, source=source, text=inside, slots=1)), [dict.fromkeys(inside, "1e5")])
        source.write_text('"name, id"\n007\n1e5\n')
        for text in "name, id", ["name, id"]:
            self.assertEqual(values(gpumux.map(tasks.same, source=source, text=text, slots=1)), [{"name, id": "007"}, {"name, id": "1e5"}])

    def test_keys(self):
        rows = [{"id": "x", "a": 1, "b": 2}, {"id": "y", "a": 3}, {"id": "z", "a": 4, "b": 5}]
        first = list(gpumux.map(tasks.field, rows, slots=1, key="id", with_item=True))
        self.assertEqual([(r.key, r.value, r.item) for r in first], list(zip("xyz", (3, None, 9), rows)))

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            results = list(gpumux.map(tasks.saving, range(2), slots=1, files=folder))
            self.assertEqual([list(r.files) for r in results], [["a.txt"], ["a.txt"]])
            self.assertEqual([open(os.path.join(folder, str(i), "a.txt")).read() for i in range(2)], ["0", "1"])

    def test_faults_are_results(self):
        results = list(gpumux.map(tasks.picky, range(5), slots=1))
        fault = results[3].fault
        self.assertEqual(values(results), [0, 1, 2, None, 4])
        self.assertEqual((fault.kind, fault.raised, fault.message, fault.attempts), ("task_error", "ValueError", "not three", 1))
        self.assertIn("in picky", fault.traceback)
        with self.assertRaisesRegex(gpumux.Fault, "^item 3: task_error: ValueError: not three$") as caught:
            for result in gpumux.map(tasks.picky, range(5), slots=1, raise_faults=True):
                self.assertLess(result.index, 3)
        self.assertEqual(caught.exception.index, 3)
        self.assertIn("in picky", str(caught.exception.__cause__))

    def test_hints_speak_of_options(self):
        (result,) = gpumux.map(tasks.fill, [256 << 20], slots=1, memory="128MiB", attempts=1).faults()
        self.assertEqual(result.fault.kind, "budget")
        self.assertRegex(result.fault.hint, r'give memory="\d+\w+" or more .*, or use smaller items$')

    def test_the_state_of_faults_goes_in_time(self):
        folder = pathlib.Path(self.state, "gpumux", "local")
        month = time.time() - 31 * 86400
        for name, made in ("old", "true"), ("named", "false"):
            mark = folder / name / "delivered" / name
            mark.parent.mkdir(parents=True)
            mark.write_text("run")
            (folder / name / "map.json").write_text(f'{{"made": {made}}}')
            for path in mark, mark.parent, folder / name / "map.json", folder / name:
                os.utime(path, (month, month))
        self.assertEqual(len(gpumux.map(tasks.picky, range(5), slots=1).faults()), 1)
        left = os.listdir(folder)
        self.assertEqual((len(left), "named" in left, "old" in left), (2, True, False), left)
        (again,) = gpumux.map(tasks.picky, range(5), slots=1, retry=True).faults()
        self.assertEqual(again.index, 3)

    def test_too_many_faults(self):
        """The map fails, wherever among its items those lie that failed, and also when every item has its row."""
        for most, items in ((0, [3, 1, 2]), ("10%", [1, 2, 3])):
            with self.subTest(most), self.assertRaisesRegex(gpumux.MapFailed, "not three"):
                list(gpumux.map(tasks.picky, items, slots=1, max_failures=most))
        self.assertEqual(values(gpumux.map(tasks.picky, [1, 3, 2], slots=1, max_failures=1)), [1, None, 2])

    def test_functions_that_no_import_finds(self):
        def triple(x):
            return x * factor

        factor = 3
        self.assertEqual(values(gpumux.map(triple, [1, 2], slots=1)), [3, 6])
        self.assertEqual(values(gpumux.stream(lambda x: -x, [1], slots=1)), [-1])
        self.assertEqual(values(gpumux.stream("math:sqrt", [4.0], slots=1)), [2.0])
        self.assertEqual(os.listdir(os.path.join(self.state, "gpumux", "functions")), [])

    def test_what_a_script_defines_in_its_last_lines(self):
        """What no import of the script has goes by value, and what it has by name."""
        script = pathlib.Path(self.state, "script.py")
        script.write_text(textwrap.dedent("""
            import sys
            import gpumux
            import threading
            lock = threading.Lock()  # which cannot be pickled

            def again(x):
                return x

            def named(x):
                with lock:
                    return [x, "result"]

            def scaled(x):
                return [json.loads("1"), [factor for _ in range(1)][0] * x]

            def word(job):
                return type(job)(job.word + {"!"}.pop())

            if __name__ == "__main__":
                import json
                factor = 5

                class Job:
                    def __init__(self, word):
                        self.word = word

                def area(x):
                    return x * 2 + factor

                def again(x):
                    return -x

                class Adder:
                    def __call__(self, x):
                        return x + factor

                for function in area, again, Adder, scaled, named:
                    print([result.value for result in gpumux.stream(function, [1, 2], slots=1, raise_faults=True)])
                with gpumux.Executor(1, initializer=area, initargs=(1,)) as executor:
                    print(list(executor.map(area, [1, 2])), executor.submit(named, 1).result())
                    print(executor.submit(word, Job("a")).result().word)
                (job,) = (result.value for result in gpumux.map(word, [Job("b")], slots=1, pickle=True, raise_faults=True))
                print(type(job) is Job, job.word)
        """))
        ran = subprocess.run([sys.executable, str(script)], cwd=self.state, capture_output=True, text=True)
        want = "[7, 9]\n[-1, -2]\n[6, 7]\n[[1, 5], [1, 10]]\n[[1, 'result'], [2, 'result']]\n[7, 9] [1, 'result']\na!\nTrue b!\n"
        self.assertEqual(ran.stdout, want, ran.stderr)
        without = f"import runpy, sys; sys.modules['cloudpickle'] = None; runpy.run_path({str(script)!r}, run_name='__main__')"
        ran = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True)
        self.assertRegex(ran.stderr, "BadInput: area is .* defined under that line.* pip install cloudpickle")

    def test_a_script_that_changes_what_its_functions_use(self):
        """Slots have what an import of it has, as of multiprocessing's spawn; nobody has to find that out from wrong values."""
        script = pathlib.Path(self.state, "changes.py")
        script.write_text(textwrap.dedent("""
            import functools, os
            import gpumux

            SCALE, MODEL, CONF, params = 1, None, {"add": 0}, {"by": 1}
            device = os.environ.get("DEVICE", "cpu")
            CACHE, SEEN, TABLE, HANDLERS, LOADED, unused = {}, [], [], {}, None, 1
            for i in range(5):
                TABLE.append(i)

            def handler(f):
                HANDLERS[f.__name__] = f
                return f

            def load():
                global LOADED
                LOADED = "loaded"

            load()

            @handler
            def plain(x):
                return [os.path.basename(__file__), TABLE[x], [*HANDLERS], LOADED, unused == 1 if x > 9 else None]

            def model(x):
                global MODEL
                if MODEL is None:
                    MODEL = os.getpid()
                return MODEL

            def cached(x):
                if x not in CACHE:
                    CACHE[x] = os.getpid()
                SEEN.append(x)
                return CACHE[x] == os.getpid() and len(SEEN) < 3

            def build(x):
                params = {}
                params["x"] = x
                return params["x"]

            @functools.lru_cache
            def add(x):
                return build(x) * params["by"] + CONF["add"]

            def scaled(x):
                return [SCALE * add(x), device]

            class Lazy:
                def __getattr__(self, name):
                    raise SystemExit(f"{name} of Lazy was asked for")

            lazy = Lazy()

            class Base:
                @property
                def scale(self):
                    return SCALE if self.itself is Base and lazy is not None else None

            Base.itself, Base.lazy = Base, lazy

            class Scaled(Base):
                def __call__(self, x):
                    return self.scale * x

            def main():
                global SCALE, unused
                model(1), cached(1), cached(2)
                SCALE, CONF["add"], params["by"], unused = 10, 5, 2, 1
                for function in scaled, scaled, Scaled, plain, cached:
                    print(function.__name__, [result.value for result in gpumux.map(function, [1, 2], slots=1, raise_faults=True)], flush=True)
                print({result.value for result in gpumux.map(model, [1, 2], slots=1, raise_faults=True)} != {os.getpid()})

            if __name__ == "__main__":
                device = "cuda"
                main()
        """))
        ran = subprocess.run([sys.executable, str(script)], cwd=self.state, capture_output=True, text=True)
        scaled, plain = "scaled [[1, 'cpu'], [2, 'cpu']]\n", "plain [['changes.py', {}, ['plain'], 'loaded', None], ['changes.py', {}, ['plain'], 'loaded', None]]\n"
        self.assertEqual(ran.stdout, scaled * 2 + "Scaled [1, 2]\n" + plain.format(1, 2) + "cached [True, True]\nTrue\n", ran.stderr)
        told = re.findall(r"(\w+) uses (\w+), which has another value in this program than in a slot, which imports changes.py: give it", ran.stderr)
        self.assertEqual(told, [("scaled", "CONF"), ("scaled", "SCALE"), ("scaled", "device"), ("scaled", "params"), ("Scaled", "SCALE")], ran.stderr)

    def test_items_that_have_values_are_left_out(self):
        done = pathlib.Path(self.state, "done.jsonl")
        done.write_text('{"index":0,"value":1,"key":"a"}\n{"index":1,"fault":{"kind":"crash"},"key":"b"}\n')
        rows = ({"id": each} for each in "abc")
        with gpumux.map(tasks.same, rows, slots=1, key="id", skip=done) as left:
            self.assertEqual([(result.index, result.key) for result in left], [(0, "b"), (1, "c")])
            self.assertEqual(len(left), 2)
        more = pathlib.Path(self.state, "d*.jsonl")
        self.assertEqual([*gpumux.map(tasks.same, [{"id": "a"}], slots=1, key="id", skip=[str(more), done])], [])

    def test_an_edition_of_any(self):
        script = pathlib.Path(self.state, "edited.py")
        script.write_text(textwrap.dedent("""
            import gpumux, pathlib

            def add(path):
                with open(path, "a") as script:
                    print(file=script)
                return True

            if __name__ == "__main__":
                for edition in "any", None:
                    print([r.value for r in gpumux.map(add, [__file__] * 3, slots=1, chunk=1, mode="fresh", edition=edition)], flush=True)
        """))
        ran = subprocess.run([sys.executable, str(script)], cwd=self.state, capture_output=True, text=True)
        self.assertEqual(ran.stdout, "[True, True, True]\n")
        self.assertRegex(ran.stderr, 'BadInput: .*a map with edition="any" takes new code as it comes')

    def test_a_module_that_is_run(self):
        package = pathlib.Path(self.state, "package")
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "scale.py").write_text("factor = 5\n")
        (package / "job.py").write_text(textwrap.dedent("""
            import gpumux
            from .scale import factor

            def scaled(x):
                return x * factor

            if __name__ == "__main__":
                print([result.value for result in gpumux.map(scaled, [1, 2], slots=1)])
        """))
        ran = subprocess.run([sys.executable, "-m", "package.job"], cwd=self.state, capture_output=True, text=True)
        self.assertEqual(ran.stdout, "[5, 10]\n", ran.stderr)

    def test_mistakes(self):
        for said, options in (
            ("memory='much': \"much\" is not a size; write it as 8GiB", {"memory": "much"}),
            ('edition="newest": edition is any', {"edition": "newest"}),
            ("slots=0: .* is not a number of slots", {"slots": 0}), ("slots=True .* is not a number of slots", {"slots": True}),
            ("attempts=0 is outside 1 to 100", {"attempts": 0}),
            ("timeout=-1.5 is outside 0", {"timeout": -1.5}), ("retry_on=.*TimeoutError.* goes with attempts", {"retry_on": TimeoutError}),
            ("retry_on=.* is empty", {"retry_on": [""], "attempts": 2}), ("mode='x' is unknown", {"mode": "x"}),
            ("devices=\\['a', 'b'\\]: unknown device", {"devices": ["a", "b"]}),
        ):
            with self.subTest(options), self.assertRaisesRegex(gpumux.BadInput, f"^{said}") as raised:
                list(gpumux.map(tasks.double, [1], **options))
            self.assertNotRegex(str(raised.exception), "--|^gpumux|note: |%")
        with self.assertRaisesRegex(TypeError, r"items\[1\] is an object"):
            list(gpumux.map(tasks.double, [1, object()], slots=1))
        with self.assertRaisesRegex(gpumux.BadInput, "no_such"):
            list(gpumux.map(tasks.__file__ + ":no_such", [1], slots=1))

        def failing():
            yield 1
            raise KeyError("the generator's own")

        with self.assertRaisesRegex(KeyError, "own"):
            list(gpumux.map(tasks.double, failing(), slots=1))

    def test_async(self):
        async def run():
            return [result.value async for result in gpumux.map(tasks.double, [1, 2], slots=1)]

        self.assertEqual(asyncio.run(run()), [2, 4])

    def test_another_event_loop(self):
        """uvloop makes the descriptors that it watches non-blocking, and a large value does not fit into the wire at once."""
        sizes = [3_000_000] * 20
        self.assertEqual(values(gpumux.map(tasks.OnUvloop, sizes, slots=1)), [["uvloop", "x" * size] for size in sizes])

    def test_side_by_side(self):
        """Maps of one function over other items are others; the same map takes the place of the one before."""
        pairs = zip(gpumux.map(tasks.double, [1, 2, 3], slots=1), gpumux.map(tasks.double, [4, 5, 6], slots=1))
        self.assertEqual([(a.value, b.value) for a, b in pairs], [(2, 8), (4, 10), (6, 12)])
        for items in ([[self.state, n] for n in range(40)], range(100)):
            function = tasks.once if isinstance(items, list) else tasks.double
            left = gpumux.map(function, items, slots=1, chunk=1)
            next(left)
            self.assertEqual(len(list(gpumux.map(function, items, slots=1, chunk=1))), len(items))

    def test_the_same_map_twice_at_once_is_refused_by_name(self):
        """One of the two has all results, and the other says why it has not."""
        said = "this map was started again while its results were read"

        async def gather():
            async def one():
                return [result.value async for result in gpumux.map(tasks.double, range(5), slots=1)]

            return await asyncio.gather(one(), one(), return_exceptions=True)

        items = [1, 2, 3, 4]
        with self.assertRaisesRegex(gpumux.Error, said):
            list(zip(*(gpumux.map(tasks.double, items, slots=1) for _ in range(2))))
        both = zip(*(gpumux.map(tasks.double, items, slots=1, id=id) for id in "ab"))
        self.assertEqual([(a.value, b.value) for a, b in both], [(2 * n, 2 * n) for n in items])
        found = asyncio.run(gather())
        self.assertTrue(all(isinstance(each, gpumux.Error) or each == [0, 2, 4, 6, 8] for each in found), found)
        self.assertTrue(any(isinstance(each, list) for each in found), found)

    def test_unordered(self):
        path = os.path.join(self.state, "now")
        with gpumux.map(tasks.await_file, [path, __file__], slots=2, chunk=1, ordered=False) as results:
            self.assertEqual(next(results).index, 1)
            pathlib.Path(path).touch()
            self.assertEqual(next(results).index, 0)

    def test_the_bar_counts_what_has_finished(self):
        """Also behind an item that others wait for."""
        import tqdm

        bars = []

        class Bar(tqdm.tqdm):
            def __init__(self, *args, **options):
                super().__init__(*args, **options, file=io.StringIO())
                bars.append(self)

        items = [[self.state, n, "" if n else "came"] for n in range(20)]
        with unittest.mock.patch("tqdm.tqdm", Bar):
            results = gpumux.map(tasks.mark, items, slots=2, chunk=1, progress=True)
            tasks.await_true(lambda: bars[0].n == 19)
            pathlib.Path(self.state, "came").touch()
            self.assertEqual(values(results), list(range(20)))
        self.assertEqual((bars[0].n, bars[0].total), (20, 20))

    def test_a_generator_is_told_of_streams_once(self):
        from gpumux.client import here

        here._tell_of_streams.cache_clear()
        with self.assertLogs("gpumux", "WARNING") as logs:
            for _ in range(2):
                list(gpumux.map(tasks.double, (n for n in (1, 2)), slots=1))
        self.assertEqual(sum("gpumux.stream takes items as they come" in line for line in logs.output), 1)

    def test_closing_keeps_what_finished(self):
        items = [[self.state, n] for n in range(60)]
        for result in gpumux.map(tasks.once, items, slots=2, chunk=1):
            if result.index == 10:
                break
        self.assertEqual(values(gpumux.map(tasks.once, items, slots=2, chunk=1)), list(range(60)))
        ran = [len(pathlib.Path(self.state, str(n)).read_text()) for n in range(60)]
        self.assertEqual(ran[:11], [1] * 11)

    def test_killed(self):
        """A script that is killed leaves nothing running, and goes on."""
        script = pathlib.Path(self.state, "script.py")
        script.write_text(textwrap.dedent(f"""
            import sys
            sys.path.insert(0, {str(pathlib.Path(__file__).parent.parent)!r})
            import gpumux
            from tests import tasks
            for result in gpumux.map(tasks.once, [[{self.state!r}, n] for n in range(150)], slots=2, chunk=1):
                print(result.value, flush=True)
        """))
        with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as first:
            for line in first.stdout:
                if line == "20\n":
                    break
            first.send_signal(signal.SIGKILL)
        second = subprocess.run([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, check=True)
        self.assertEqual(second.stdout.split(), [str(n) for n in range(150)])
        ran = [len(pathlib.Path(self.state, str(n)).read_text()) for n in range(150)]
        self.assertEqual(ran[:21], [1] * 21)
        while any(self.state in text for text in _environments()):
            time.sleep(0.05)


def _environments():
    """The environments of all processes but this one, which say where their state lies."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        if process.name != str(os.getpid()):
            try:
                yield (process / "environ").read_text(errors="replace")
            except OSError:
                pass


if __name__ == "__main__":
    unittest.main()

import datetime
import decimal
import io
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest

import numpy
import pandas
import pyarrow.parquet

import gpumux
from gpumux.client import tables

from . import tasks


class Values(unittest.TestCase):
    items = [
        (1, (2,)), {3, "a"}, frozenset("xy"), b"\x00x", datetime.date(2026, 1, 2), decimal.Decimal("1.10"), {1: 2, "1": 3}, tasks.Pair(1, (2,)), 1e400,
        None, 10**400, datetime.timedelta(seconds=1.5), complex(1, 2),
    ]

    def test_pickled_items_and_values_are_what_they_were(self):
        results = list(gpumux.stream(tasks.same, self.items, slots=1, pickle=True, with_item=True))
        self.assertEqual([(r.value, type(r.value)) for r in results], [(item, type(item)) for item in self.items])
        self.assertEqual([r.item for r in results], self.items)

    def test_arrays_and_tables(self):
        array, frame = numpy.arange(6, dtype="i2").reshape(2, 3), pandas.DataFrame({"a": [1, 2], "t": pandas.to_datetime(["2026-01-02", None])})
        one, table = (r.value for r in gpumux.stream(tasks.same, [array, frame], slots=1, pickle=True))
        numpy.testing.assert_array_equal(one, array, strict=True)
        pandas.testing.assert_frame_equal(table, frame)
        rows = [r.value for r in gpumux.stream(tasks.same, array, slots=1, pickle=True)]
        numpy.testing.assert_array_equal(numpy.stack(rows), array, strict=True)
        self.assertEqual([r.value for r in gpumux.stream(tasks.name_of_type, range(2), slots=1, pickle=True)], ["int", "int"])

    def test_batches_and_windows(self):
        for function in tasks.batched, tasks.together:
            self.assertEqual([r.value for r in gpumux.stream(function, [(1,), (2, 3)], slots=1, pickle=True)], [((1,), "tuple"), ((2, 3), "tuple")])
        rows = [r.value for r in gpumux.stream(tasks.rows_of_floats, [1, 2], slots=1, pickle=True)]
        self.assertEqual([(each.dtype.name, each.shape) for each in rows], [("float32", (2,))] * 2)

    def test_what_a_batch_function_returns(self):
        rows = [{"n": 0, "text": "x"}, {"n": 1, "text": "x"}]
        want = dict.fromkeys(("pandas", "arrow", "polars"), rows) | {"index": [{"id": "i", **row} for row in rows]}
        want |= dict.fromkeys(("series", "array", "generator"), [0, 1])
        refused = {
            "mapping": "returned a collections.UserDict", "dict": "returned a dict", "text": "returned a str", "named": "returned a .*Found",
            "nothing": "returned a NoneType", "short": "returned 2 for a batch of 1", "rows": "returned 3 for a batch of 1",
        }
        for pickle in False, True:
            found = list(gpumux.map(tasks.as_table, [kind for kind in want | refused for _ in range(2)], slots=1, chunk=2, pickle=pickle))
            self.assertEqual([r.value for r in found if r.fault is None], [value for values in want.values() for value in values])
            failed = [r.fault.message for r in found if r.fault is not None]
            self.assertEqual(len(failed), 2 * len(refused))
            for kind, message in zip(refused, failed[1::2]):
                self.assertRegex(message, refused[kind])

    def test_what_a_batch_function_takes(self):
        objects = [{"n": n, "text": "x"} for n in range(4)]
        for function, kind, column in (
            (tasks.of_pandas, "DataFrame", "Series"), (tasks.of_polars, "DataFrame", "Series"), (tasks.of_arrow, "Table", "Int64Array"),
            (tasks.OfNumpy, "dict", "ndarray"),
        ):
            with self.subTest(kind):
                found = [r.value for r in gpumux.map(function, objects, slots=1, chunk=4)]
                self.assertEqual([(row["n"], row["kind"], row["total"]) for row in found], [(n, kind, 2 * n) for n in range(4)])
                self.assertEqual([r.value for r in gpumux.stream(function, range(2), slots=1)], [[column, 0], [column, 1]])

    def test_tables_of_a_batch_function_are_whole(self):
        rows = [{"v": [1.5, 2], "w": [1]}, {"v": [3, 4], "w": [1, 2], "new": "x"}]
        found = [r.value for r in gpumux.map(tasks.shapes, rows, slots=1, chunk=2)]
        self.assertEqual(found, [["float64", [2, 2]]] * 2)
        images = [{"image": numpy.full((2, 3), n, "f4")} for n in range(4)]
        self.assertEqual([r.value for r in gpumux.map(tasks.shapes, images, slots=1, chunk=4, pickle=True)], [["float32", [4, 2, 3]]] * 4)
        faults = [r.fault.message for r in gpumux.map(tasks.crooked, [{"n": n} for n in range(2, 5)], slots=1, chunk=3)]
        self.assertEqual(faults, [r"a batch function returned a dict with columns of different lengths: {'n': 0, 'm': 1}", "three",
            r"a batch function returned a dict with columns of different lengths: {'n': 0, 'm': 1}"])

    def test_rows_of_pandas_in_another_order(self):
        columns = {"table": ["n", "as", "size"], "again": ["n", "as", "size"], "dict": ["n", "m"], "mixed": ["n", "size"]}
        for kind in "table", "column", "dict", "again", "mixed":
            with self.subTest(kind):
                values = [r.value for r in gpumux.map(tasks.backwards, [{"n": n * 7 % 8, "as": kind} for n in range(8)], slots=1, chunk=8)]
                self.assertEqual([value if kind == "column" else value["n"] for value in values], [n * 7 % 8 for n in range(8)])
                self.assertEqual([list(value) for value in values] if kind in columns else [], [columns[kind]] * 8 if kind in columns else [])
                self.assertEqual({value["size"] for value in values} if kind == "mixed" else {1}, {1}, "columns of which one does not say its order")

    def test_keys(self):
        rows = [{"id": "a", "v": (1,)}, {"id": "b", "v": {2}}]
        found = [(r.key, r.value) for r in gpumux.stream(tasks.same, rows, slots=1, pickle=True, key="id")]
        self.assertEqual(found, [("a", rows[0]), ("b", rows[1])])

    def test_what_cannot_be_pickled(self):
        with self.assertRaisesRegex(TypeError, r"items\[1\] cannot be pickled: "):
            list(gpumux.map(tasks.same, [1, threading.Lock()], slots=1, pickle=True))
        (fault,) = gpumux.stream(tasks.generator, [1], slots=1, pickle=True).faults()
        self.assertRegex(fault.fault.message, "the result, a generator, cannot be pickled")
        with self.assertRaisesRegex(TypeError, "pickle=True goes with items of this program"):
            gpumux.map(tasks.same, source="items.jsonl", pickle=True)

    def test_what_json_changes_is_told_once(self):
        for items, said in (
            ([1, (2,), (3,)], r"items\[1\] is a tuple, which JSON makes a list; with pickle=True"),
            ([{"a": [{"b": {1}}]}], r"items\[0\]\['a'\]\[0\]\['b'\] is a set, which JSON makes a list"),
            ([b"x"], r"items\[0\] is a bytes, which JSON makes a str"),
            ([{"a": {1: 2}}], r"items\[0\]\['a'\] has the key 1, which JSON makes the text \"1\""),
            (numpy.array([[1, 2]]), r"items\[0\] is a numpy.ndarray, which JSON makes a list"),
        ):
            with self.subTest(items), self.assertLogs("gpumux", "WARNING") as logs:
                list(gpumux.stream(tasks.same, items, slots=1))
            changes = [line for line in logs.output if "JSON" in line]
            self.assertEqual(len(changes), 1, logs.output)
            self.assertRegex(changes[0], said)
        with self.assertLogs("gpumux", "WARNING") as logs:
            list(gpumux.stream(tasks.same, [1, [float("nan"), None], {"a": numpy.float32(1)}, pandas.NA, numpy.bool_(True)], slots=1))
        self.assertNotIn("JSON", "".join(logs.output))
        with self.assertRaisesRegex(TypeError, r"items\[0\] is a complex, which JSON cannot hold; give pickle=True"):
            list(gpumux.stream(tasks.same, [1j], slots=1))

    def test_a_value_that_raises_here_is_the_fault_of_its_row(self):
        said = "task_error: ValueError: the value of index 2 cannot be unpickled here: ValueError"
        items = [{"n": n, "bomb": n == 2} for n in range(4)]
        for run, ordered in (gpumux.map, True), (gpumux.stream, False):
            results = run(tasks.bomb_row, items, slots=1, pickle=True, ordered=ordered, key="n", with_item=True)
            found = sorted(results, key=lambda result: result.index)
            self.assertEqual([(r.value, r.key, r.item) for r in found], [(n if n != 2 else None, n, items[n]) for n in range(4)])
            self.assertRegex(str(found[2].fault), "^" + said)
            self.assertIsInstance(found[2].fault.__cause__, ValueError)
            self.assertEqual([r.index for r in results.faults()], [2])
        with self.assertRaisesRegex(gpumux.Fault, "^item 2: " + said):
            list(gpumux.stream(tasks.bomb_row, items, slots=1, pickle=True, raise_faults=True))
        self.assertEqual(gpumux.stream(tasks.bomb_row, items, slots=1, pickle=True).to_pandas()["fault"].tolist()[2], "task_error")
        (left,) = gpumux.stream(tasks.leaving, [1], slots=1, pickle=True).faults()
        self.assertEqual(left.fault.raised, "SystemExit")

    def test_several_arguments(self):
        for pickle in False, True:
            with self.subTest(pickle=pickle):
                both = list(gpumux.stream(tasks.joined, [1, 2], (3, 4), slots=1, pickle=pickle, with_item=True))
                self.assertEqual([(r.value, r.item) for r in both], [("1 3", (1, 3)), ("2 4", (2, 4))])
                pairs = gpumux.starmap(tasks.joined, [(1, [2]), "ab"], slots=1, pickle=pickle)
                self.assertEqual((len(pairs), [r.value for r in pairs]), (2, ["1 [2]", "a b"]))
        with self.assertRaisesRegex(ValueError, "the iterables have 2, 3 items"):
            gpumux.map(tasks.joined, [1, 2], [1, 2, 3])
        with self.assertRaisesRegex(ValueError, "iterable 2 of 2 ends after 1 items"):
            list(gpumux.stream(tasks.joined, iter([1, 2]), iter([1]), slots=1))
        with self.assertRaisesRegex(TypeError, r"items\[1\] is an int; gpumux.starmap takes"):
            list(gpumux.starmap(tasks.joined, [(1, 2), 3], slots=1))

    def test_a_killed_script_goes_on(self):
        """Its items are pickled alike in another process, whatever the hash seed, and its classes are its own on both sides."""
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "script.py")
            script.write_text(textwrap.dedent("""
                import dataclasses, pathlib, sys, time
                import gpumux

                @dataclasses.dataclass
                class Job:
                    "Without this line its text would be a printed set."
                    n: int
                    words: frozenset = frozenset(("one", "other", "third", "fourth"))

                def run(job):
                    assert type(job) is Job, type(job)
                    with open(pathlib.Path(__file__).with_name(str(job.n)), "a") as marks:
                        marks.write("x")
                    time.sleep(0.02)
                    return job

                if __name__ == "__main__":
                    jobs = [Job(n) for n in range(100)]
                    for result in gpumux.map(run, jobs, slots=2, chunk=1, pickle=True, raise_faults=True):
                        assert result.value == jobs[result.index], result
                        print(result.index, flush=True)
            """))
            with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONHASHSEED": "1"}) as first:
                for line in first.stdout:
                    if line == "20\n":
                        break
                first.send_signal(signal.SIGKILL)
            second = subprocess.run([sys.executable, script], stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": "2"})
            self.assertEqual(second.stdout.split(), [str(n) for n in range(100)])
            ran = [len(pathlib.Path(folder, str(n)).read_text()) for n in range(100)]
            self.assertEqual(ran[:21], [1] * 21)

    def test_the_same_item_is_the_same_bytes(self):
        """In every process, with cloudpickle and without."""
        program = """
            import collections, datetime, decimal, enum, hashlib, sys
            HIDE
            import numpy, pandas
            from gpumux.client import values

            Named = collections.namedtuple("Named", "words count")
            words = {"alpha", "beta", "gamma", "delta"}
            items = [
                words, {"key": frozenset(words), ("a", "b"): [words, "".join(("al", "pha")), "alpha"]}, numpy.arange(300.0),
                pandas.DataFrame({"words": ["alpha", "".join(("al", "pha"))], "day": [datetime.date(2026, 1, 2)] * 2}),
                decimal.Decimal("1.50"), {1: {frozenset({("x", 1), ("y", 2)})}}, Named(frozenset(words), 3),
            ]
            data = [values.dumps(item, "item", False) for item in items]
            assert values.loads(data[1]) == items[1] and values.loads(data[6]) == items[6]
            print(hashlib.sha256(b"".join(data)).hexdigest())
        """
        for hide in "pass", 'sys.modules["cloudpickle"] = None':
            found = set()
            for seed in "1", "2":
                code = textwrap.dedent(program).replace("HIDE", hide)
                ran = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True)
                self.assertEqual(ran.returncode, 0, ran.stderr)
                found.add(ran.stdout)
            self.assertEqual(len(found), 1, hide)


class Results(unittest.TestCase):
    def test_what_they_show(self):
        rows = gpumux.map(tasks.printing, [1, 3, 5], slots=1)
        self.assertEqual((len(rows), repr(rows)), (3, "<gpumux.Rows: 0 of 3 results given, runs>"))
        first = next(rows)
        self.assertEqual((first.output, repr(first)), ("at 1\n", r"Result(index=0, value=1, output='at 1\n')"))
        (failed,) = rows.faults()
        self.assertEqual(repr(failed), "Result(index=1, fault=<Fault task_error: ValueError: not three>)")
        self.assertEqual(repr(rows), "<gpumux.Rows: 3 of 3 results given, 1 failed>")
        self.assertEqual(repr(gpumux.Result(0, list(range(1000)))), "Result(index=0, value=[0, 1, 2, 3, 4, 5, ...])")

    def test_tables(self):
        items = [{"id": "a", "x": 1}, {"id": "b", "x": 3}, {"id": "c", "x": 5}]
        frame = gpumux.stream(tasks.measured, items, slots=1, key="id").to_pandas()
        self.assertEqual(list(frame.columns), ["key", "square", "value.key", "fault", "fault_message"])
        self.assertEqual((frame.index.name, frame["square"].dropna().tolist(), frame["fault"].tolist()[1]), ("index", [1, 25], "task_error"))
        table = gpumux.stream(tasks.double, [1, 2], slots=1).to_arrow()
        self.assertEqual(table.drop_columns(["fault", "fault_message"]).to_pydict(), {"index": [0, 1], "value": [2, 4]})

    def test_tables_have_values_as_they_are(self):
        wide, most, nan = 2**53 + 1, 2**64 - 1, float("nan")
        for values, kind, want, frame in (
            ([wide, nan], "int64", [wide, None], "Int64"), ([wide, None], "int64", [wide, None], "Int64"), ([1, None], "int64", [1, None], "Int64"),
            ([most, nan, None], "uint64", [most, None, None], "UInt64"), ([most, 1], "uint64", [most, 1], "uint64"),
            ([most, -1], "string", [str(most), "-1"], "object"), ([wide, 0.5, nan], "string", [str(wide), "0.5", '"NaN"'], "object"),
            ([2**70, None], "string", [str(2**70), None], "object"), ([1, 0.5, None], "double", [1, 0.5, None], "float64"),
            ([[wide, 0.5]], "string", ["[%d,0.5]" % wide], "object"), ([{"id": wide}, {"id": None}], "struct<id: int64>", [{"id": wide}, {"id": None}], "object"),
            ([{"id": wide}, {"id": nan}], "string", ['{"id":%d}' % wide, '{"id":"NaN"}'], "object"), ([1, "a"], "string", ["1", '"a"'], "object"),
            ([{}, None], "string", ["{}", None], "object"), ([[{}]], "string", ["[{}]"], "object"), ([{"b": {}}], "string", ['{"b":{}}'], "object"),
        ):
            with self.subTest(values):
                results = [gpumux.Result(i, {"a": value}) for i, value in enumerate(values)]
                table = tables.to_arrow(results)
                self.assertEqual((str(table["a"].type), table["a"].to_pylist()), (kind, want))
                pyarrow.parquet.write_table(table, io.BytesIO())
                found = tables.to_pandas(results)["a"]
                self.assertEqual(str(found.dtype), frame)
                self.assertEqual(*[[each for each in both if each is not None and each is not pandas.NA and each == each] for both in (found, values)])

    def test_a_row_without_fields_is_null_in_each(self):
        results = [gpumux.Result(i, value) for i, value in enumerate([{"a": 1, "b": "x"}, {}])]
        for found in (tables.to_arrow(results).to_pydict(), tables.to_pandas(results).astype(object).where(lambda x: x.notna(), None).to_dict("list")):
            self.assertEqual((found["a"], found["b"]), ([1, None], ["x", None]))
        none = [gpumux.Result(0, {}), gpumux.Result(1, {})]
        self.assertEqual((tables.to_arrow(none)["value"].to_pylist(), tables.to_pandas(none)["value"].tolist()), (["{}", "{}"], [{}, {}]))


if __name__ == "__main__":
    unittest.main()

import json
import unittest

import numpy
import pandas
import polars
import pyarrow

import gpumux
from gpumux.client.items import given
from gpumux.process.item import numbers


def items_of(items):
    """What the function gets."""
    _, lines, total = given(items, None)
    found = [json.loads(numbers(line.decode())) for line in lines]
    assert total in (None, len(found)), total
    return found


class Items(unittest.TestCase):
    columns = {"a": [1, 2, None], "b": ["x", "y", None]}
    rows = [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}, {"a": None, "b": None}]

    def test_rows_of_tables(self):
        table = pyarrow.table(self.columns)
        halves = pyarrow.concat_tables([table.slice(0, 1), table.slice(1)])
        for items in (table, halves, table.to_batches()[0], polars.DataFrame(self.columns), pandas.DataFrame(self.columns, dtype=object)):
            with self.subTest(type(items)):
                self.assertEqual(items_of(items), self.rows)

    def test_values_of_columns(self):
        lists, many = [[1, 2], [], None], list(range(2500))
        halves = pyarrow.chunked_array([[1], [2, None]])
        for items, want in (
            (halves, [1, 2, None]), (pyarrow.array(["x", None]), ["x", None]), (polars.Series([1, None]), [1, None]), (polars.Series(lists), lists),
            (pyarrow.array(lists), lists), (pyarrow.array(many), many), (polars.Series(many), many), (pyarrow.array([], "i8"), []),
            (pandas.Series([1, 2]), [1, 2]), ({"x": 1}.items(), [["x", 1]]), ({"x": 1}.keys(), ["x"]),
        ):
            with self.subTest(type(items)):
                self.assertEqual(items_of(items), want)

    def test_the_index_of_a_frame(self):
        """Items have it as the same frame has it in Parquet."""
        for index, want in (
            (pandas.Index(["x", "y"], name="id"), {"id": ["x", "y"]}), (pandas.Index([3, 5], name="id"), {"id": [3, 5]}),
            (pandas.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=["k", None]), {"k": ["a", "b"], "__index_level_1__": [1, 2]}),
            (["x", "y"], {"__index_level_0__": ["x", "y"]}), (range(3, 5), {}),
        ):
            with self.subTest(index):
                frame = pandas.DataFrame({"v": [1, 2]}, index=index)
                items = items_of(frame)
                self.assertEqual(items, [dict(zip(["v", *want], row)) for row in zip([1, 2], *want.values())])
                self.assertEqual(items, pyarrow.Table.from_pandas(frame).to_pylist())
        named = pandas.DataFrame({"v": [1, 2]}, index=pandas.RangeIndex(2, name="id"))
        self.assertEqual(items_of(named), [{"id": 0, "v": 1}, {"id": 1, "v": 2}])
        with self.assertRaisesRegex(TypeError, "DataFrame with two columns of one name, v"):
            gpumux.map("math:sqrt", pandas.DataFrame({"v": [1]}, index=pandas.Index([1], name="v")))

    def test_ranges(self):
        large = range(2**70, 2**70 + 3)
        self.assertEqual(items_of(large), list(large))
        self.assertEqual(given(range(2**63 - 3, 2**63), None)[0], ["--in", "-"])
        self.assertEqual(given(range(-5, 2), None), (["--range", "-5:2"], None, 7))
        with self.assertRaisesRegex(ValueError, r"^items is range\(0, 1180591620717411303424\), which has more than 9,223,372,036,854,775,807 items"):
            gpumux.map("math:sqrt", range(2**70))

    def test_missing_values(self):
        frame = pandas.DataFrame({
            "float": [1.5, None], "text": ["a", None], "object": pandas.Series(["a", None], dtype=object),
            "whole": pandas.array([1, None], dtype="Int64"), "time": pandas.to_datetime(["2026-01-02", None]),
        })
        first, missing = items_of(frame)
        self.assertEqual(first, {"float": 1.5, "text": "a", "object": "a", "whole": 1, "time": "2026-01-02T00:00:00"})
        self.assertEqual([repr(missing[name]) for name in ("float", "object", "whole", "time")], ["nan", "None", "None", "None"])
        self.assertEqual(repr(missing["text"]), repr(frame["text"].tolist()[1]))
        self.assertEqual(items_of(frame["whole"]), [1, None])
        self.assertEqual(items_of([pandas.NA, [pandas.NaT]]), [None, [None]])
        stamp = pandas.Timestamp(2026, 1, 2, tz="UTC")
        for column in (pandas.Series([stamp, None]), pandas.Series([stamp, None], dtype="timestamp[ns, UTC][pyarrow]"), pandas.DatetimeIndex([stamp, None])):
            self.assertEqual(items_of([column]), [["2026-01-02T00:00:00+00:00", None]])
        self.assertEqual(items_of([pandas.Series([pandas.Timedelta(1500, "ms"), None]), pandas.Timedelta("NaT")]), [[1.5, None], None])
        self.assertEqual(repr(items_of([pandas.Series([0.1, None], dtype="float32")])), "[[0.1, nan]]")
        for column in (pyarrow.array([float("nan"), None]), polars.Series([float("nan"), None])):
            self.assertEqual(repr(items_of(column)), "[nan, None]")

    def test_what_has_no_rows_is_refused_before_any_work(self):
        for items, words in (
            (pandas.DataFrame([[1, 2, 3]], columns=["a", "b", "a"]), r"pandas\.DataFrame with two columns of one name, a; rename one"),
            (pyarrow.table([[1], [2]], names=["a", "a"]), r"pyarrow\.lib\.Table with two columns of one name, a"),
            (pyarrow.record_batch([[1], [2]], names=["a", "a"]), "RecordBatch with two columns"),
            (numpy.array(3), r"numpy\.ndarray without dimensions, a single value"), (numpy.float64(3), r"numpy\.float64 without dimensions"),
            (polars.LazyFrame(self.columns), r"polars\.lazyframe\.frame\.LazyFrame; give a list"),
            (pyarrow.table(self.columns).to_reader(), r"pyarrow\.lib\.RecordBatchReader; give"),
            (pandas.NA, "NAType; give"), (3, "items is an int; give"),
            ({"a": 1}, "items is a dict, whose items would be its keys"), ({1, 2}, "items is a set, which has no order"),
            ("items.jsonl", "items is a text, .* source="), (b"ab", "items is a text"), (bytearray(b"ab"), "items is a text"),
        ):
            with self.subTest(type(items)):
                with self.assertRaisesRegex(TypeError, words):
                    gpumux.map("math:sqrt", items)

    def test_items_that_are_tables(self):
        for table in (pandas.DataFrame({"a": [1]}), pyarrow.table({"a": [1]}), polars.DataFrame({"a": [1]})):
            with self.subTest(type(table)):
                with self.assertRaisesRegex(TypeError, rf"items\[0\] is a \S*{type(table).__name__}, which JSON cannot hold"):
                    items_of([table])


if __name__ == "__main__":
    unittest.main()

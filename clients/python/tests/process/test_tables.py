"""Tables of a micro-batch's items, and the rows of what it returns."""

import unittest

import numpy
import pandas
import polars

from gpumux.process import tables, typed


class TestMaker(unittest.TestCase):
    def test_numpy_changes_no_cell(self):
        make = tables.maker("numpy")
        for cells, dtype in (
            ([1, 2], "int64"), ([True, False], "bool"), ([1, 2.5], "float64"), ([[1, 2], [3, 4]], "int64"), ([2**63, 1], "object"),
            ([numpy.float32(1), numpy.float32(2)], "float32"), ([numpy.zeros((2, 2), "f2")] * 3, "float16"),
            (["a", "ab\0"], "object"), ([b"ab\0", b""], "object"), ([1, "a"], "object"), ([1, None], "object"), ([True, 2], "object"),
            ([2**63, -1], "object"), ([2**70], "object"), ([[1], [1, 2]], "object"), ([["a"], ["b"]], "object"), ([[1, "a"], [2, 3]], "object"),
            ([{"a": 1}, 2], "object"), ([(1, 2)], "object"),
        ):
            with self.subTest(cells):
                array = make(cells)
                self.assertEqual((array.dtype.name, len(array)), (dtype, len(cells)))
                if dtype == "object":
                    self.assertEqual([(type(x), x) for x in array], [(type(x), x) for x in cells])
        found = make([{"n": 1, "text": "x"}, {"n": 2}])
        self.assertEqual((list(found), found["n"].tolist(), found["text"].tolist()), (["n", "text"], [1, 2], ["x", None]))
        long = make(["x"] * 999 + ["y" * 10_000_000])
        self.assertEqual((long.dtype.name, long.nbytes), ("object", 8000))

    def test_polars_keeps_all_fields_and_numbers(self):
        make = tables.maker("polars")
        nested = [{"a": {"b": 1}, "p": 3}, {"a": {"b": 2, "c": "x"}, "p": 2.5, "late": True}]
        self.assertEqual(make(nested).to_dicts(), [{"a": {"b": 1, "c": None}, "p": 3.0, "late": None}, {"a": {"b": 2, "c": "x"}, "p": 2.5, "late": True}])
        self.assertEqual(make([1, 2.5]).to_list(), [1.0, 2.5])
        self.assertIs(type(make([1])), polars.Series)

    def test_pandas_and_arrow_have_each_field(self):
        rows = [{"a": 1}, {"b": "x"}]
        self.assertEqual(list(tables.maker("pandas")(rows).columns), ["a", "b"])
        self.assertEqual(tables.maker("arrow")(rows).to_pylist(), [{"a": 1, "b": None}, {"a": None, "b": "x"}])


class TestOfColumns(unittest.TestCase):
    def test_cells_are_written_as_elsewhere(self):
        columns = {
            "i": numpy.array([1, 2]), "f": numpy.array([0.1, 2], "f4"), "t": numpy.array(["2024-01-01", "NaT"], "M8[ns]"), "v": numpy.eye(2, dtype="f4"),
            "s": ["x", None], "p": pandas.Series([1.5, 2]),
        }
        rows = tables.of_columns(columns, "it")
        for i, row in enumerate(rows):
            for name, cell in row.items():
                self.assertEqual(packed(cell), packed(columns[name][i]), name)
        self.assertIs(type(rows[0]["i"]), int)

    def test_what_is_no_column(self):
        for column, said in ((1.5, "column 'x' is a float"), ("ab", "column 'x' is a str"), (numpy.float32(1), "column 'x' is a float32")):
            with self.assertRaisesRegex(TypeError, f"^it whose {said}; give one value for each item$"):
                tables.of_columns({"x": column}, "it")
        with self.assertRaisesRegex(ValueError, r"^it with columns of different lengths: {'x': 1, 'y': 2}$"):
            tables.of_columns({"x": [1], "y": [1, 2]}, "it")


def packed(value):
    data = typed.pack(value)
    return data if isinstance(data, bytes) else (data.kind, bytes(data.head), bytes(data.data))

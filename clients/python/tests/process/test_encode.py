"""What a task may return, and what it becomes."""

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import json
import os
import pathlib
import sys
import unittest
import uuid

from gpumux.process.encode import encode, rows

try:
    import numpy
except ImportError:
    numpy = None


@dataclasses.dataclass
class Point:
    x: float
    y: list


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


Pair = collections.namedtuple("Pair", "a b")


class Array:
    """Stands in for the arrays and scalars of NumPy, torch and JAX: all that encode uses of them is tolist."""

    def __init__(self, plain):
        self.plain = plain

    def tolist(self):
        return self.plain


class Holder(Array):
    """Its plain value is a dict."""


class Tensor:
    """Stands in for TensorFlow's."""

    def __init__(self, plain):
        self.plain = plain

    def numpy(self):
        return Array(self.plain)


class Own:
    def tolist(self):
        return self

    def __float__(self):
        return 1.5


NAN, INF = float("nan"), float("inf")

TABLE = [
    (None, "null"),
    (True, "true"),
    (12345678901234567890, "12345678901234567890"),
    (0.1, "0.1"),
    ("zażółć \U0001f600\n", '"zażółć \U0001f600\\n"'),
    ([1, (2, [3])], "[1,[2,[3]]]"),
    ({"a": 1, 2: 3, None: 4, True: 5, 1.5: 6}, '{"a":1,"2":3,"null":4,"true":5,"1.5":6}'),
    ([NAN, INF, -INF, 1.5], r'["\u004eaN","\u0049nfinity","\u002dInfinity",1.5]'),
    ({"deep": [{"x": NAN}]}, r'{"deep":[{"x":"\u004eaN"}]}'),
    ({NAN: 1}, '{"NaN":1}'),
    (["NaN", "-Infinity", "\\u004eaN", NAN], r'["NaN","-Infinity","\\u004eaN","\u004eaN"]'),
    (b"\x00\xff", '"AP8="'),
    (bytearray(b"ab"), '"YWI="'),
    (memoryview(b"abcd")[::2], '"YWM="'),
    (pathlib.Path("/a/b"), '"/a/b"'),
    (datetime.datetime(2026, 1, 2, 3, 4, 5), '"2026-01-02T03:04:05"'),
    (datetime.date(2026, 1, 2), '"2026-01-02"'),
    (datetime.time(3, 4), '"03:04:00"'),
    (datetime.timedelta(minutes=2), "120.0"),
    (decimal.Decimal("1.10"), '"1.10"'),
    (uuid.UUID(int=5), '"00000000-0000-0000-0000-000000000005"'),
    ({3, 1, 2}, "[1,2,3]"),
    (frozenset(["b", "a"]), '["a","b"]'),
    ({1, "a"}, '[1,"a"]'),
    (Color.RED, '"red"'),
    (Level.HIGH, "3"),
    ({Color.RED: 1}, '{"red":1}'),
    (Pair(1, 2), "[1,2]"),
    (Point(1.5, [Point(2, [])]), '{"x":1.5,"y":[{"x":2,"y":[]}]}'),
    (array.array("i", [1, 2]), "[1,2]"),
    (Array([[1.5, 2]]), "[[1.5,2]]"),
    (Array(7), "7"),
    ({Array(7): Array([NAN])}, r'{"7":["\u004eaN"]}'),
    (Tensor([1, 2]), "[1,2]"),
    (Own(), "1.5"),
    ("", '""'),
    ({}, "{}"),
]


class TestEncode(unittest.TestCase):
    def test_table(self):
        for value, want in TABLE:
            with self.subTest(repr(value)):
                self.assertEqual(encode(value).decode(), want)
                # The same inside of something, and beside a value that takes the slow way.
                self.assertEqual(encode([value, NAN]).decode(), f'[{want},"\\u004eaN"]')
                json.loads(encode({"k": [value]}))

    def test_errors_name_the_place(self):
        circle = []
        circle.append({"again": circle})
        for value, words in [
            ({"scores": [1, 2, 3, Ellipsis]}, r"result\.scores\[3\] is an ellipsis, which JSON cannot hold; return dict"),
            (object(), "result is an object"),
            ((x for x in "ab"), "result is a generator"),
            ({"a b": 1j}, r"result\['a b'\] is a complex"),
            ([fractions.Fraction(1, 2)], r"result\[0\] is a fractions\.Fraction"),
            ({(1, 2): 3}, "a key of result is a tuple"),
            ({"x": {b"k": object()}}, r"result\.x\[\"b'k'\"\] is an object"),
            (Point, "result is a type"),
            (Array([object()]), r"result\[0\] is an object"),
            (Array(1j), "result is a complex"),
        ]:
            with self.subTest(words):
                with self.assertRaisesRegex(TypeError, words):
                    encode(value)
        with self.assertRaisesRegex(ValueError, r"result\[0\]\.again contains itself"):
            encode(circle)
        with self.assertRaisesRegex(TypeError, "progress is an object"):
            encode(object(), "progress")

    def test_half_of_a_surrogate_pair_is_refused_with_its_place(self):
        for value, words in [
            ("lone \ud800", r"result has half of a surrogate pair \(\\ud800, character 5\)"),
            ({"a": [NAN, ("\udfff",)]}, r"result\.a\[1\]\[0\] has half of .*\\udfff, character 0"),
            ({"\udc80": 1}, r"a key of result has half of .*\\udc80"),
            (pathlib.Path(os.fsdecode(b"/a/\xff.png")), r"result has half of .*\\udcff, character 3.*return os\.fsencode\(name\)"),
            ([Color.RED, Point("\ud83d", "\ude00")], r"result\[1\]\.x has half of .*\\ud83d"),
        ]:
            with self.subTest(value=value), self.assertRaisesRegex(ValueError, words):
                encode(value)
        self.assertEqual(encode("\U0001f600"), '"\U0001f600"'.encode())

    def test_keys_that_become_one_are_refused(self):
        circle = {"a": 1}
        circle[1] = [circle]
        for value, words in [
            ({1: "a", "1": "b"}, r"^result has the keys 1 and '1', which are both '1' in JSON; give one another name$"),
            ({"x": [{None: 1, "null": 2}]}, r"^result\.x\[0\] has the keys None and 'null'"),
            (({"true": 1, True: 2},), r"^result\[0\] has the keys 'true' and True"),
            ({1.5: 1, "1.5": 2}, "the keys 1.5 and '1.5'"),
            ({float("nan"): 1, float("nan"): 2}, "the keys nan and nan"),
            ({Color.RED: 1, "red": 2}, "which are both 'red'"),
            (Point(1.5, [{2: 1, "2": 2}]), r"^result\.y\[0\] has the keys 2 and '2'"),
            (Array([{2: 1, "2": 2}]), r"^result\[0\] has the keys 2 and '2'"),
            ({"k": Holder({3: 1, "3": 2})}, r"^result\.k has the keys 3 and '3'"),
            (circle, r"^result\[1\]\[0\]|^result\['1'\]\[0\] contains itself"),
        ]:
            with self.subTest(words):
                with self.assertRaisesRegex(ValueError, words):
                    encode(value)

    def test_conversion_that_fails_is_explained(self):
        class Gone:
            def tolist(self):
                raise ValueError("buffer was donated")

        with self.assertRaisesRegex(TypeError, r"result\.a is a .*Gone that does not convert: buffer was donated"):
            encode({"a": Gone()})

    def test_too_deep(self):
        value = []
        for _ in range(200000):
            value = [value]
        try:
            with self.assertRaises(RecursionError):
                encode(value)
        finally:
            # Taken apart by hand: some releases cannot free it either.
            while value:
                value = value.pop()

    def test_shared_values_are_not_circular(self):
        shared = [NAN]
        self.assertEqual(encode([shared, shared]), rb'[["\u004eaN"],["\u004eaN"]]')

    def test_value_is_not_changed(self):
        value = {"a": [NAN, {1}, Array([1])]}
        before = repr(value)
        encode(value)
        self.assertEqual(repr(value), before)


class TestRows(unittest.TestCase):
    def test_lists(self):
        self.assertEqual(rows([1, 2]), [1, 2])
        self.assertEqual(rows((1, 2)), [1, 2])
        self.assertEqual(rows(x for x in "ab"), ["a", "b"])
        self.assertEqual(rows(Array([[1], [2]])), [[1], [2]])
        self.assertEqual(rows(Tensor([1, 2])), [1, 2])

    def test_no_lists(self):
        for value in ("ab", {"a": 1}, None, 5, b"ab", {1}, collections.UserDict(a=1), collections.namedtuple("Pair", "a b")(1, 2)):
            with self.subTest(value):
                with self.assertRaisesRegex(TypeError, rf"this one returned an? \S*{type(value).__name__}"):
                    rows(value)
        with self.assertRaisesRegex(TypeError, "a single number"):
            rows(Array(5))


@unittest.skipUnless(numpy, "needs NumPy")  # the stand-ins above cover the same paths of encode
class TestNumPy(unittest.TestCase):
    def test_table(self):
        for value, want in [
            (numpy.float32(0.5), "0.5"),
            (numpy.float64(0.1), "0.1"),
            (numpy.float32("nan"), r'"\u004eaN"'),
            (numpy.int64(-7), "-7"),
            (numpy.bool_(True), "true"),
            (numpy.str_("ä"), '"ä"'),
            (numpy.longdouble(1.5), "1.5"),
            (numpy.array(3), "3"),
            (numpy.array([[1, 2], [3, 4]]), "[[1,2],[3,4]]"),
            (numpy.array([1.5, numpy.inf]), r'[1.5,"\u0049nfinity"]'),
            (numpy.zeros((2, 0)), "[[],[]]"),
            (numpy.array([1.5], dtype=numpy.longdouble), "[1.5]"),
            (numpy.datetime64("2026-01-02T03:04:05.123456789"), '"2026-01-02T03:04:05.123456789"'),
            (numpy.array(["2026-01-02"], dtype="datetime64[D]"), '["2026-01-02"]'),
            (numpy.array(["2026-01-02", "NaT"], dtype="datetime64[D]"), '["2026-01-02",null]'),
            (numpy.datetime64("NaT"), "null"),
            (numpy.timedelta64(1500, "ms"), "1.5"),
            (numpy.timedelta64("NaT"), "null"),
            (numpy.array([1500, "NaT"], dtype="timedelta64[ms]"), "[1.5,null]"),
            (numpy.array([b"ab"]), '["YWI="]'),
            (numpy.array(["a"]), '["a"]'),
            (numpy.array([None, {"a": numpy.int8(1)}]), '[null,{"a":1}]'),
            ({numpy.int64(5): numpy.float16(1)}, '{"5":1.0}'),
            (numpy.array([(1, 2.5)], dtype=[("a", int), ("b", float)]), "[[1,2.5]]"),
            (numpy.array([("2026-01-02", 0.1)], dtype=[("a", "M8[ns]"), ("b", "f4")]), '[["2026-01-02T00:00:00.000000000",0.1]]'),
            (numpy.array((1, [2, 3]), dtype=[("a", int), ("b", int, 2)]), "[1,[2,3]]"),
        ]:
            with self.subTest(repr(value)):
                self.assertEqual(encode(value).decode(), want)

    def test_masked_is_null(self):
        masked, days = numpy.ma.array, ["2026-01-01", "2026-01-02"]
        times = masked(days, dtype="M8[D]", mask=[True, False])
        within = [("a", int), ("b", [("c", "f4"), ("d", "M8[D]")])]
        for value, want in [
            (numpy.ma.masked, "null"),
            (masked(1, mask=True), "null"),
            (masked([1, 2], mask=[True, False]), "[null,2]"),
            (masked([0.1, 0.2], dtype="f4", mask=[True, False]), "[null,0.2]"),
            (masked(["a", "b"], mask=[True, False]), '[null,"b"]'),
            (times, '[null,"2026-01-02"]'),
            ({"a": [times, times[0]]}, '{"a":[[null,"2026-01-02"],null]}'),
            (masked([1, 2], dtype="m8[s]", mask=[True, False]), "[null,2.0]"),
            (masked([[1, "NaT"], [2, 3]], dtype="M8[s]", mask=[[True, False], [False, True]]), '[[null,null],["1970-01-01T00:00:02",null]]'),
            (masked(days, dtype="M8[D]"), '["2026-01-01","2026-01-02"]'),
            (masked([(1, (0.1, days[0]))], dtype=within, mask=[(True, (False, True))]), "[[null,[0.1,null]]]"),
        ]:
            with self.subTest(repr(value)):
                self.assertEqual(encode(value).decode(), want)

    def test_complex_is_refused(self):
        for value in (numpy.complex64(1), numpy.array([1j]), numpy.clongdouble(1)):
            with self.subTest(repr(value)):
                with self.assertRaisesRegex(TypeError, "which JSON cannot hold"):
                    encode(value)

    def test_rows(self):
        self.assertEqual(rows(numpy.array([[1, 2], [3, 4]])), [[1, 2], [3, 4]])
        with self.assertRaises(TypeError):
            rows(numpy.array(1))


if __name__ == "__main__":
    print("numpy", numpy and numpy.__version__, file=sys.stderr)
    unittest.main()

"""Raw values against the same file that the worker's side is tested with, and against what encode.py says."""

import json
import math
import os
import struct
import unittest

from gpumux.process.encode import encode
from gpumux.process.raw import ARRAY, BYTES, MIXED, Raw, pack, pack_all, read, split

try:
    import numpy
except ImportError:
    numpy = None
try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

VALUES = os.path.join(os.path.dirname(__file__), "..", "..", "..", "..", "internal", "wire", "testdata", "values.json")


def values(kind):
    with open(VALUES, encoding="utf-8") as file:
        return [each for each in json.load(file) if each["kind"] == kind]


class TestBytes(unittest.TestCase):
    def test_golden(self):
        for each in values(BYTES):
            data = bytes.fromhex(each["hex"])
            for value in (data, bytearray(data), memoryview(data)):
                raw = pack(value)
                self.assertEqual((raw.kind, raw.head, bytes(raw.data)), (BYTES, b"", data))
                self.assertEqual(encode(value).decode(), each["text"])

    def test_views(self):
        view = memoryview(bytearray(struct.pack("4I", 1, 2, 3, 4)))
        for value in (view.cast("I"), view.cast("I")[::2], view.cast("B", (4, 4)), view[::-1]):
            raw = pack(value)
            self.assertEqual((bytes(raw.data), len(raw)), (value.tobytes(), value.nbytes))

    def test_the_rest_is_json(self):
        for value in (b"", bytearray(), memoryview(b""), 1, "x", 1.5, None, True, [b"x"], {"a": b"x"}):
            self.assertEqual(pack(value), encode(value))


class TestMicroBatches(unittest.TestCase):
    def test_values_are_as_one_by_one(self):
        import datetime

        circle = []
        circle.append(circle)
        day, deep = datetime.date(2026, 11, 30), []
        for _ in range(500):
            deep = [deep]
        plain = [1, -2.5, True, None, "\u00e9\"\n", {"a": [1, {"b": ()}]}, [], {}, 10**400, {1: 2}, {True: 1, False: 2}, {"day": day, "raw": b"x"}, deep]
        class Path:
            def __fspath__(self):
                raise OSError("gone")

        odd = [Path(), math.nan, [math.inf], {1: "a", "1": "b"}, {"a": {1: "a", "1": "b"}}, "\ud800", circle, {"a": object()}, day, b"bytes", 10**5000]
        for given in (plain, odd, [*plain, *odd], ["a"], [[float("1e300")]], []):
            one_by_one = []
            for value in given:
                try:
                    one_by_one.append(pack(value))
                except Exception as error:
                    one_by_one.append(error)
            self.assertEqual(list(map(shown, pack_all(given))), list(map(shown, one_by_one)))

    @unittest.skipUnless(numpy, "needs NumPy")
    def test_arrays_stay_bytes(self):
        for value in ([numpy.arange(3)], {"v": numpy.ones(2, "f4"), "n": 1}, numpy.float32(0.1), numpy.int64(3), {"x": numpy.float64(0.1)}, numpy.ones((2, 2))):
            self.assertEqual([*map(shown, pack_all([1, value, "a"]))], [shown(each) for each in (pack(1), pack(value), pack("a"))])


def shown(answer):
    """An encoded value, or the exception in its place."""
    return (answer.kind, answer.head, bytes(answer.data)) if isinstance(answer, Raw) else repr(answer)


@unittest.skipUnless(numpy, "needs NumPy")
class TestArray(unittest.TestCase):
    def same(self, value):
        """value travels as the array that it is, its own memory left alone."""
        raw = pack(value)
        self.assertIs(type(raw), Raw)
        letter, size, dimensions = struct.unpack_from("<cBBx", raw.head)
        shape = struct.unpack_from(f"<{dimensions}Q", raw.head, 4)
        back = numpy.frombuffer(bytes(raw.data), f"<{letter.decode()}{size}").reshape(shape)
        self.assertEqual(encode(back), encode(value))

    def test_golden(self):
        for each in values(ARRAY):
            packed = bytes.fromhex(each["hex"])
            letter, size, dimensions = struct.unpack_from("<cBBx", packed)
            shape = struct.unpack_from(f"<{dimensions}Q", packed, 4)
            value = numpy.frombuffer(packed[4 + 8 * dimensions :], f"<{letter.decode()}{size}").reshape(shape)
            self.assertEqual(encode(value).decode(), each["text"], each["name"])
            raw = pack(value)
            self.assertEqual((raw.head + bytes(raw.data)).hex(), each["hex"], each["name"])
            self.assertEqual(len(raw), len(packed))

    def back(self, value):
        """value as the item that the next task gets."""
        raw = pack(value)
        return read(memoryview(raw) if type(raw) is bytes else Raw(raw.kind, b"", memoryview(raw.head + bytes(raw.data))))

    def test_as_items(self):
        for each in values(ARRAY) + values(MIXED):
            data = memoryview(bytes.fromhex(each["hex"]))
            found = read(Raw(each["kind"], b"", data))
            self.assertEqual(encode(found).decode(), each["text"], each["name"])
            again = pack(found)
            self.assertEqual((again.kind, again.head + bytes(again.data)), (each["kind"], data), each["name"])

    def test_items_are_arrays_of_their_own(self):
        value = numpy.arange(12, dtype="f4").reshape(3, 4)
        raw = pack(value)
        sent = Raw(raw.kind, b"", memoryview(bytes(1) + raw.head + bytes(raw.data))[1:])
        for found in read(sent), read(sent):
            self.assertTrue(found.flags.owndata and found.flags.aligned and found.flags.writeable)
            numpy.testing.assert_array_equal(found, value)
            found += 1

    def test_items_with_arrays_inside(self):
        a, b = numpy.array([True, False]), numpy.arange(6, dtype="u2").reshape(1, 2, 3)
        odd = "\u017c\u00f3\u0142\u0107 \U0001f600\n\""
        for value in (
            {"a": a, "boxes": [b, [], {"deep": [a, {}]}], odd: odd}, [a, b, a], [{"NaN": a}, float("nan"), -float("inf"), "NaN", 10**30],
        ):
            found = self.back(value)
            self.assertEqual(repr(found), repr(value))
            self.assertEqual(encode(found), encode(value))
        self.assertEqual(self.back([a, b])[1].dtype, b.dtype)

    def test_items_that_json_carries(self):
        for value in (numpy.zeros(0), numpy.zeros((2, 0)), numpy.array(2.5), {"a": numpy.zeros((2, 0))}):
            self.assertEqual(repr(self.back(value)), repr(json.loads(encode(value))))

    def test_items_that_are_damaged(self):
        text = struct.pack("<Q", 3) + b"[1,"
        with self.assertRaisesRegex(ValueError, "the item is not JSON: "):
            read(Raw(MIXED, b"", memoryview(text)))
        with self.assertRaisesRegex(OverflowError, "the item holds 1e400, "):
            read(Raw(MIXED, b"", memoryview(struct.pack("<Q", 7) + b"[1e400]")))

    def test_every_layout(self):
        base = numpy.arange(60, dtype="f8").reshape(3, 4, 5) / 7
        read_only = base.copy()
        read_only.flags.writeable = False
        for value in (base.T, base[::-1, ::2], numpy.asfortranarray(base), base.astype(">f8"), base.astype(">i4"), read_only,
                      base[1], base[:, 2, 3], numpy.broadcast_to(base[0], (2, 4, 5))):
            self.same(value)

    def test_left_to_json(self):
        for value in (
            numpy.float32(0.1), numpy.array(2.5), numpy.zeros(0), numpy.zeros((2, 0)), numpy.array(["a"]), numpy.array([None]),
            numpy.array(["2026-01-02"], "M8[D]"), numpy.array([1], "m8[s]"), numpy.array([1.5], "g"),
            numpy.ma.array([1, 2], mask=[0, 1]), numpy.ma.array([0.1, 2], "f4", mask=[0, 1]), {"a": numpy.zeros(0)}, [numpy.float32(0.1)],
        ):
            packed = pack(value)
            self.assertIs(type(packed), bytes, repr(value))
            self.assertEqual(packed, encode(value))
        with self.assertRaisesRegex(TypeError, "result"):
            pack(numpy.array([1j]))

    def test_inside_of_values(self):
        wanted = {each["name"]: each for each in values(MIXED)}
        boxes = [numpy.array([[1, 2]], "i4"), None]
        for name, value in {
            "object with arrays": {"label": "c\u00e4t", "vector": numpy.array([0.1, 2], "f4"), "boxes": boxes},
            "list of one": [numpy.array([True])],
        }.items():
            raw = pack(value)
            self.assertEqual((raw.kind, bytes(raw.data).hex()), (MIXED, wanted[name]["hex"]), name)
            self.assertEqual(encode(value).decode(), wanted[name]["text"], name)

    def test_inside_of_what_the_encoder_refuses(self):
        """A NaN, or keys that are no strings, make the encoder walk the value, and its arrays come once all the same."""
        array = numpy.array([1.5], "f4")
        plain, odd = pack({"a": array, "1": [array]}), pack({"a": array, 1: [array]})
        self.assertEqual(bytes(odd.data), bytes(plain.data))
        self.assertIs(type(pack({"a": array, "b": float("nan")})), Raw)
        with self.assertRaisesRegex(TypeError, r"result\.b"):
            pack({"a": array, "b": object()})
        self.assertEqual(pack({"b": 1}), b'{"b":1}')

    def test_short_floats_have_their_own_digits(self):
        for dtype in ("f2", "f4"):
            numbers = numpy.frombuffer(os.urandom(4096), dtype)
            back = numpy.array([float(text) for text in json.loads(encode(numbers))], "f8").astype(dtype)
            numpy.testing.assert_array_equal(back, numbers)
            self.assertEqual(encode([*numbers[:8]]), encode(numbers[:8]))
        twice = numpy.array([0x15AE43FD], "u4").view("f4")
        self.assertEqual(numpy.float64(json.loads(encode(twice))[0]).astype("f4"), twice[0])
        self.assertEqual(encode(twice[0]), encode(twice)[1:-1])

    @unittest.skipUnless(ml_dtypes, "needs ml_dtypes, as JAX does")
    def test_bfloat16(self):
        numbers = numpy.array([0.1, 2, float("inf")], ml_dtypes.bfloat16)
        self.assertEqual(bytes(pack(numbers).data), numbers.astype("f4").tobytes())
        self.assertEqual(encode([numbers[0], numbers]), rb'[0.100097656,[0.100097656,2.0,"\u0049nfinity"]]')

    def test_rows_of_a_batch(self):
        rows = split(numpy.arange(6).reshape(3, 2))
        self.assertEqual([encode(row) for row in rows], [b"[0,1]", b"[2,3]", b"[4,5]"])
        for none in (numpy.arange(3), [1, 2], None, numpy.array([["a"]])):
            self.assertIsNone(split(none))


if __name__ == "__main__":
    unittest.main()

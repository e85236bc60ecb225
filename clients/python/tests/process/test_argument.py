"""Arguments with arrays in them, as files."""

import io
import json
import math
import os
import tempfile
import unittest
import unittest.mock

import numpy

from gpumux.process import argument


def through(value):
    """value as a process reads it, and the file's first bytes."""
    with tempfile.NamedTemporaryFile() as file:
        argument.write(value, file)
        file.flush()
        with open(file.name, "rb") as again:
            head = again.read(len(argument.HEAD))
        return argument.read(file.name), head


class TestArgument(unittest.TestCase):
    def test_without_arrays_it_is_json(self):
        for value in [None, 1, "gpumux-array", [1.5, math.inf], {"a": {"b": [True, None]}}, numpy.float32(0.1)]:
            found, head = through(value)
            self.assertEqual(found, json.loads(json.dumps(value if not isinstance(value, numpy.generic) else 0.1)))
            self.assertNotEqual(head, argument.HEAD)

    def test_arrays(self):
        square = numpy.arange(12.0).reshape(3, 4)
        for array in [
            square, square.T, square[:, ::2], square.astype(">f4"), square.astype("f2"), square > 3, numpy.arange(5, dtype="u1"),
            numpy.empty((0, 3), "i8"), numpy.arange(3, dtype="i2"), numpy.zeros((2, 1, 2, 1), "u8"),
        ]:
            with self.subTest(array.dtype, shape=array.shape):
                found, head = through(array)
                self.assertEqual(head, argument.HEAD)
                self.assertEqual((found.dtype, found.shape), (array.dtype.newbyteorder("<"), array.shape))
                numpy.testing.assert_array_equal(found, array)

    def test_arrays_among_other_values(self):
        value = {"index": numpy.arange(3), "deep": [{"a": numpy.ones((2, 2)), "nan": math.nan}, "gpumux-array", "gpumux-array'"], "b": b"\x00", "n": numpy.float64(2)}
        found, _ = through(value)
        numpy.testing.assert_array_equal(found["index"], value["index"])
        numpy.testing.assert_array_equal(found["deep"][0]["a"], value["deep"][0]["a"])
        self.assertTrue(math.isnan(found["deep"][0]["nan"]))
        self.assertEqual([found["deep"][1:], found["b"], found["n"]], [value["deep"][1:], "AA==", 2])

    def test_what_is_read_cannot_be_changed_and_is_aligned(self):
        found, _ = through([numpy.arange(3, dtype="u1"), numpy.arange(3.0)])
        with self.assertRaises(ValueError):
            found[1][0] = 7
        for array in found:
            self.assertEqual(array.ctypes.data % 64, 0)

    def test_a_memory_mapped_array_is_an_array(self):
        with tempfile.NamedTemporaryFile() as file:
            numpy.memmap(file, "f4", "w+", shape=(10, 10))[:] = 2
            found, head = through({"w": numpy.memmap(file.name, "f4", "r", shape=(10, 10))})
            self.assertEqual((head, float(found["w"].sum())), (argument.HEAD, 200))

    def test_the_same_value_is_the_same_file(self):
        files = []
        for _ in range(2):
            file = io.BytesIO()
            argument.write({"a": numpy.arange(1000).reshape(10, 100).T}, file)
            files.append(file.getvalue())
        self.assertEqual(*files)

    def test_what_json_cannot_hold(self):
        with self.assertRaisesRegex(TypeError, r"arg\.x is an object"):
            argument.write({"a": numpy.arange(3), "x": object()}, io.BytesIO())
        masked = numpy.ma.masked_array([1, 2], [True, False])
        self.assertEqual(through({"m": masked})[0], {"m": [None, 2]})

    def test_without_numpy(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a")
            with open(path, "wb") as file:
                argument.write(numpy.arange(3), file)
            with unittest.mock.patch.dict("sys.modules", {"numpy": None}), self.assertRaisesRegex(ImportError, "has no NumPy: pip install numpy"):
                argument.read(path)


if __name__ == "__main__":
    unittest.main()
